// dump_topic.js ADDRESS TOPIC COUNT: prints key, tab and value of a topic's COUNT records, with kafkajs.
'use strict'
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
const LZ4 = require('kafkajs-lz4')
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec
const { once } = require('node:events')

const [address, topic, count] = process.argv.slice(2)
const main = async () => {
  const kafka = new Kafka({ clientId: 'dump', brokers: [address], logLevel: logLevel.ERROR })
  const consumer = kafka.consumer({ groupId: topic + '-js', maxBytesPerPartition: 4 << 20, maxBytes: 32 << 20 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let read = 0
  let done
  const all = new Promise(resolve => { done = resolve })
  await consumer.run({
    eachBatch: async ({ batch }) => {
      const lines = batch.messages.map(m => m.key.toString() + '\t' + m.value.toString() + '\n')
      if (lines.length > 0 && !process.stdout.write(lines.join(''))) await once(process.stdout, 'drain')
      read += lines.length
      if (read >= Number(count)) done()
    }
  })
  const timer = setTimeout(() => { console.error(`read ${read} of ${count} records`); process.exit(1) }, 400000)
  await all
  clearTimeout(timer)
  await consumer.disconnect()
}
main().then(() => process.exit(0), error => { console.error(error); process.exit(1) })
