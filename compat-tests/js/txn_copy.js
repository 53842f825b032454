// txn_copy.js ADDRESS IN OUT NAME: copies topic IN to OUT, each message exactly once, with kafkajs. Group and transactional
// id are NAME. Ends when its standard input does. After a failure it goes on from the group's offsets with another producer,
// whose start ends what the old one left; a consumer that gives up is replaced.
'use strict'
const { Kafka, logLevel, Partitioners } = require('kafkajs')

const [address, source, target, name] = process.argv.slice(2)
const retry = { initialRetryTime: 100, maxRetryTime: 500, retries: 1000 }
const kafka = new Kafka({ clientId: name, brokers: [address], logLevel: logLevel.NOTHING, requestTimeout: 5000, connectionTimeout: 2000, retry })
let producer

const insist = async (what, step) => {
  for (;;) {
    try {
      return await step()
    } catch (e) {
      console.log(what + ': ' + e.message)
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }
}

const newProducer = async () => {
  if (producer) await producer.disconnect().catch(() => {})
  producer = kafka.producer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true, transactionTimeout: 10000, createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
}

// rewind goes back to what the group has committed.
const rewind = async consumer => {
  const admin = kafka.admin()
  await admin.connect()
  const [{ partitions }] = await admin.fetchOffsets({ groupId: name, topics: [source] })
  await admin.disconnect()
  for (const p of partitions) consumer.seek({ topic: source, partition: p.partition, offset: BigInt(p.offset) < 0n ? '0' : p.offset })
}

// copySome copies messages of one partition in one transaction.
const copySome = async (partition, messages) => {
  const transaction = await producer.transaction()
  await transaction.send({ topic: target, acks: -1, messages: messages.map(m => ({ key: m.key, value: m.value, partition })) })
  const next = (BigInt(messages[messages.length - 1].offset) + 1n).toString()
  await transaction.sendOffsets({ consumerGroupId: name, topics: [{ topic: source, partitions: [{ partition, offset: next }] }] })
  await transaction.commit()
}

const copy = async (consumer, { batch, isRunning, isStale, heartbeat, resolveOffset }) => {
  for (let at = 0; at < batch.messages.length && isRunning() && !isStale(); at += 40) {
    const messages = batch.messages.slice(at, at + 40)
    try {
      await copySome(batch.partition, messages)
    } catch (e) {
      console.log('failed: ' + e.message)
      await insist('producer', newProducer)
      await insist('offsets', () => rewind(consumer))
      return
    }
    resolveOffset(messages[messages.length - 1].offset)
    await heartbeat()
  }
}

const consume = async () => {
  const consumer = kafka.consumer({ groupId: name, sessionTimeout: 6000, heartbeatInterval: 500, readUncommitted: false, maxWaitTimeInMs: 300, retry })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    console.log('consumer: ' + payload.error.message + ', restarts: ' + payload.restart)
    if (!payload.restart) insist('consumer', consume)
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: payload => copy(consumer, payload) })
}

const main = async () => {
  process.stdin.resume()
  process.stdin.on('end', () => process.exit(0))
  await insist('producer', newProducer)
  await insist('consumer', consume)
}
main()
