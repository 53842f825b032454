// kafkajs as a program of the client matrix.
'use strict'
const s = require('./scenario.js')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel, Partitioners } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new (require('kafkajs-lz4'))().codec

const retry = { initialRetryTime: 100, maxRetryTime: 500, retries: 200 }
const kafka = new Kafka({ clientId: s.name, brokers: s.addresses, logLevel: logLevel.NOTHING, connectionTimeout: 2000, retry })
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4 }
const count = s.perCodec * Object.keys(codecs).length
const createPartitioner = Partitioners.DefaultPartitioner
const client = kafka.admin()
// Each partition has a send of its own: one send for several loses what is for a partition whose leader goes, in the middle of it, to a
// broker that has answered already (sendMessages.js asks no broker twice), and resolves all the same.
const send = async (producer, topic, values) => {
  for (let partition = 0; partition < 3; partition++) {
    const messages = values.filter((_, i) => i % 3 === partition).map(value => ({ key: value, value, partition }))
    await producer.send({ topic, acks: -1, messages })
  }
}

const read = async (group, n) => {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 10000 })
  await consumer.connect()
  await consumer.subscribe({ topics: [s.name], fromBeginning: true })
  const seen = []
  await consumer.run({ eachMessage: async ({ partition, message }) => { seen.push({ partition, message }) } })
  await s.until(() => seen.length >= n)
  await consumer.disconnect()
  return seen
}

s.run({
  admin: async () => {
    await client.connect()
    await client.createTopics({ topics: [{ topic: s.name, numPartitions: 2, replicationFactor: s.replicas }], waitForLeaders: true })
    s.check('topic is listed', await s.until(async () => (await client.listTopics()).includes(s.name)))
    const cluster = await client.describeCluster()
    s.check('cluster is described', cluster.brokers.length === s.addresses.length && cluster.controller !== null, cluster)
  },
  codecs: async () => {
    for (const [codec, compression] of Object.entries(codecs)) {
      const producer = kafka.producer({ createPartitioner })
      await producer.connect()
      const messages = Array.from({ length: s.perCodec }, (_, i) => ({ key: `${codec}-${i}`, value: `${codec}-${i}`, partition: i % 2, headers: { codec } }))
      const result = await producer.send({ topic: s.name, compression, acks: -1, messages })
      s.check('produced with ' + codec, result.length === 2 && result.every(r => r.errorCode === 0), result)
      await producer.disconnect()
    }
    const seen = await read(s.name + '-g', count)
    s.check('group reads all', new Set(seen.map(m => m.partition + '@' + m.message.offset)).size === count, seen.length)
    s.check('keys, values, headers', seen.every(({ message: m }) => m.value.equals(m.key) && m.headers.codec.toString() === m.key.toString().split('-')[0]))
    for (let p = 0; p < 2; p++) {
      const offsets = seen.filter(m => m.partition === p).map(m => Number(m.message.offset))
      s.check('order of partition ' + p, offsets.length === count / 2 && offsets.every((o, i) => o === i), offsets.slice(0, 5))
    }
    const committed = (await client.fetchOffsets({ groupId: s.name + '-g', topics: [s.name] }))[0].partitions
    s.check('committed at close', committed.length === 2 && committed.every(p => p.offset === String(count / 2)), committed)
  },
  flow: async () => {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, createPartitioner, retry })
    await producer.connect()
    await s.flow(values => send(producer, s.name + '-flow', values))
    await producer.disconnect()
  },
  txn: async () => {
    let producer
    const renew = async () => {
      if (producer) await producer.disconnect().catch(() => {})
      producer = kafka.producer({ transactionalId: s.name + '-id', idempotent: true, maxInFlightRequests: 1, transactionTimeout: 30000, createPartitioner, retry })
      await producer.connect()
    }
    await renew()
    await s.transactions(async (i, values, commit) => {
      const transaction = await producer.transaction()
      await send(transaction, s.name + '-txn', values)
      await transaction.sendOffsets({ consumerGroupId: s.name + '-txn-g', topics: [{ topic: s.name + '-flow', partitions: [{ partition: 0, offset: String(i + 1) }] }] })
      await (commit ? transaction.commit() : transaction.abort())
    }, renew)
    await producer.disconnect()
  },
  group: async mode => {
    const members = [0, 1].map(i => {
      const consumer = kafka.consumer({ groupId: s.name + '-' + mode, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 300, retry })
      return { i, consumer }
    })
    for (const { i, consumer } of members) {
      await consumer.connect()
      await consumer.subscribe({ topics: [s.name + '-group'], fromBeginning: true })
      await consumer.run({ autoCommitInterval: 300, eachMessage: async ({ message }) => s.say('read', i, message.value.toString()) })
    }
    await s.wait()
    for (const { consumer } of members) await consumer.disconnect()
  },
  end: async () => {
    const ends = await client.fetchTopicOffsets(s.name)
    s.check('topic offsets', ends.every(p => p.low === '0' && p.high === String(count / 2)), ends)
    s.check('group is described', (await client.describeGroups([s.name + '-g'])).groups[0].state === 'Empty')
    await client.setOffsets({ groupId: s.name + '-g', topic: s.name, partitions: [{ partition: 0, offset: String(count / 2 - 10) }] })
    const again = await read(s.name + '-g', 10)
    s.check('offsets were set', again.length === 10 && again.every(m => m.partition === 0), again.length)
    await client.deleteGroups([s.name + '-g'])
    s.check('group is deleted', !(await client.listGroups()).groups.some(g => g.groupId === s.name + '-g'))
    await client.deleteTopics({ topics: [s.name] })
    s.check('topic is deleted', await s.until(async () => !(await client.listTopics()).includes(s.name)))
    await client.disconnect()
  }
})
