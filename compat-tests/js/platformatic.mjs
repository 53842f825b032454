// @platformatic/kafka as a program of the client matrix.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import zlib from 'node:zlib'

const s = createRequire(import.meta.url)('./scenario.js')
// NODE_PATH does not count for modules, so the package is named by its file.
const { Admin, Producer, Consumer, stringSerializers: serializers, stringDeserializers: deserializers, MessagesStreamModes } =
  await import(pathToFileURL(process.env.NODE_PATH + '/@platformatic/kafka/dist/index.js'))
const base = { clientId: s.name, bootstrapBrokers: s.addresses, retries: 10, retryDelay: 200, timeout: 20000, connectTimeout: 2000, metadataMaxAge: 2000 }
const client = new Admin(base)
const codecs = ['none', 'gzip', 'snappy', 'lz4']
if (zlib.zstdCompressSync) codecs.push('zstd') // of Node itself, since 22.15
const count = s.perCodec * codecs.length

const consume = async (groupId, topic, more = {}) => {
  const consumer = new Consumer({ ...base, groupId, deserializers, sessionTimeout: 10000, heartbeatInterval: 500, rebalanceTimeout: 15000, maxWaitTime: 300, ...more })
  const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest', autocommit: true })
  return { stream, close: async () => { await stream.close(); await consumer.close(true) } }
}

s.run({
  admin: async () => {
    await client.createTopics({ topics: [s.name], partitions: 2, replicas: s.replicas })
    s.check('topic is listed', await s.until(async () => (await client.listTopics()).includes(s.name)))
  },
  codecs: async () => {
    for (const compression of codecs) {
      const producer = new Producer({ ...base, serializers, compression, acks: -1 })
      const messages = Array.from({ length: s.perCodec }, (_, i) =>
        ({ topic: s.name, partition: i % 2, key: `${compression}-${i}`, value: `${compression}-${i}`, headers: new Map([['h', '1']]) }))
      const r = await producer.send({ messages })
      s.check('produced with ' + compression, r.offsets.length === 2, r)
      await producer.close()
    }
    const { stream, close } = await consume(s.name + '-g', s.name)
    let n = 0
    let good = true
    for await (const m of stream) {
      good &&= m.value === m.key && m.headers.get('h') === '1'
      if (++n === count) break
    }
    s.check('group reads all, with keys, values and headers', n === count && good, n)
    await close()
  },
  flow: async () => {
    const producer = new Producer({ ...base, serializers, idempotent: true, acks: -1 })
    // A send asks one address until it has no retries left, also when that node is gone: what failed is sent again.
    await s.flow(async values => {
      for (;;) {
        try {
          return await producer.send({ messages: values.map(value => ({ topic: s.name + '-flow', key: value, value })) })
        } catch (e) { s.say('again', e.message) }
      }
    })
    await producer.close()
  },
  txn: async () => {
    let producer, consumer
    // Both keep the first coordinator that they have found, so others take their place after an error. The producer asks for a new epoch:
    // by itself it would name producer 0 as its former self.
    const renew = async () => {
      for (const old of [producer, consumer]) await old?.close(true)
      producer = new Producer({ ...base, serializers, idempotent: true, acks: -1, transactionalId: s.name + '-id', producerId: -1n, producerEpoch: -1 })
      consumer = new Consumer({ ...base, groupId: s.name + '-txn-g' })
    }
    await renew()
    await s.transactions(async (i, values, commit) => {
      const transaction = await producer.beginTransaction()
      await transaction.send({ messages: values.map(value => ({ topic: s.name + '-txn', key: value, value })) })
      await transaction.addConsumer(consumer)
      // This is what a message would be that the consumer has read: none reads, for it would end the process where a node is gone.
      const coordinatorId = await consumer.findGroupCoordinator()
      const metadata = { consumer: { groupId: consumer.groupId, generationId: -1, memberId: '', coordinatorId } }
      await transaction.addOffset({ topic: s.name + '-flow', partition: 0, offset: BigInt(i), metadata })
      await (commit ? transaction.commit() : transaction.abort())
    }, renew)
    await producer.close()
    await consumer.close()
  },
  group: async mode => {
    const members = []
    let over = false
    // A stream ends at the first error of a fetch, a node that is gone included: the member joins again.
    const join = async i => {
      const member = await consume(s.name + '-' + mode, s.name + '-group', mode === 'static' ? { groupInstanceId: 'i' + i } : {})
      members[i] = member
      member.stream.on('data', m => s.say('read', i, m.value))
      member.stream.on('error', async e => {
        s.say('again', e.message)
        await member.close().catch(() => {})
        if (!over) await s.insist(() => join(i))
      })
    }
    for (const i of [0, 1]) await join(i)
    await s.wait()
    over = true
    for (const { close } of members) await close()
  },
  end: async () => {
    s.check('group is listed', (await client.listGroups()).has(s.name + '-g'))
    await client.deleteGroups({ groups: [s.name + '-g'] })
    await client.deleteTopics({ topics: [s.name] })
    s.check('topic is deleted', await s.until(async () => !(await client.listTopics()).includes(s.name)))
    await client.close()
  }
})
