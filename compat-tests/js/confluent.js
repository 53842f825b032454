// @confluentinc/kafka-javascript (librdkafka) as a program of the client matrix.
'use strict'
const s = require('./scenario.js')
const { KafkaJS } = require('@confluentinc/kafka-javascript')
const { Kafka, CompressionTypes, PartitionAssigners, logLevel } = KafkaJS

const kafka = new Kafka({ kafkaJS: { clientId: s.name, brokers: s.addresses, logLevel: logLevel.NOTHING }, 'reconnect.backoff.max.ms': 500 })
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.SNAPPY, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD }
const count = s.perCodec * Object.keys(codecs).length
const client = kafka.admin()
const send = (producer, topic, values) => producer.send({ topic, messages: values.map(value => ({ key: value, value })) })

// member reads a topic in a group and commits by itself.
const member = async (groupId, topic, eachMessage, more = {}, assigner = PartitionAssigners.range) => {
  const consumer = kafka.consumer({
    kafkaJS: { groupId, fromBeginning: true, autoCommitInterval: 200, sessionTimeout: 10000, heartbeatInterval: 500, partitionAssigners: [assigner] }, ...more
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic] })
  await consumer.run({ eachMessage })
  return consumer
}

s.run({
  admin: async () => {
    await client.connect()
    await client.createTopics({ topics: [{ topic: s.name, numPartitions: 2, replicationFactor: s.replicas }] })
    s.check('topic is listed', await s.until(async () => (await client.listTopics()).includes(s.name)))
  },
  codecs: async () => {
    for (const [codec, compression] of Object.entries(codecs)) {
      const producer = kafka.producer({ kafkaJS: { acks: -1, compression } })
      await producer.connect()
      const messages = Array.from({ length: s.perCodec }, (_, i) => ({ key: `${codec}-${i}`, value: `${codec}-${i}`, partition: i % 2, headers: { codec } }))
      await producer.send({ topic: s.name, messages })
      s.check('produced with ' + codec, true)
      await producer.disconnect()
    }
    const seen = []
    const consumer = await member(s.name + '-g', s.name, async ({ partition, message }) => { seen.push({ partition, message }) })
    await s.until(() => seen.length >= count)
    await consumer.disconnect()
    s.check('group reads all', new Set(seen.map(m => m.partition + '@' + m.message.offset)).size === count, seen.length)
    s.check('keys, values, headers', seen.every(({ message: m }) => m.value.equals(m.key) && m.headers.codec.toString() === m.key.toString().split('-')[0]))
  },
  flow: async () => {
    const producer = kafka.producer({ kafkaJS: { acks: -1, idempotent: true } })
    await producer.connect()
    await s.flow(values => send(producer, s.name + '-flow', values))
    await producer.disconnect()
  },
  txn: async () => {
    const group = kafka.consumer({ kafkaJS: { groupId: s.name + '-txn-g' } })
    await group.connect()
    let producer
    const renew = async () => {
      if (producer) await producer.disconnect().catch(() => {})
      producer = kafka.producer({ kafkaJS: { transactionalId: s.name + '-id', transactionTimeout: 30000 } })
      await producer.connect()
    }
    await renew()
    await s.transactions(async (i, values, commit) => {
      const transaction = await producer.transaction()
      await send(transaction, s.name + '-txn', values)
      await transaction.sendOffsets({ consumer: group, topics: [{ topic: s.name + '-flow', partitions: [{ partition: 0, offset: String(i + 1) }] }] })
      await (commit ? transaction.commit() : transaction.abort())
    }, renew)
    await producer.disconnect()
    await group.disconnect()
  },
  group: async mode => {
    const members = []
    for (const i of [0, 1]) {
      members.push(await member(s.name + '-' + mode, s.name + '-group', async ({ message }) => s.say('read', i, message.value.toString()),
        mode === 'static' ? { 'group.instance.id': 'i' + i } : {}, mode === 'cooperative' ? PartitionAssigners.cooperativeSticky : PartitionAssigners.range))
    }
    await s.wait()
    for (const m of members) await m.disconnect()
  },
  end: async () => {
    s.check('group is listed', (await client.listGroups()).groups.some(g => g.groupId === s.name + '-g'))
    await client.deleteGroups([s.name + '-g'])
    await client.deleteTopics({ topics: [s.name] })
    s.check('topic is deleted', await s.until(async () => !(await client.listTopics()).includes(s.name)))
    await client.disconnect()
  }
})
