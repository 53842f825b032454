// race.js ADDRESS TOPIC PREFIX COUNT: COUNT kafkajs producers that have nothing in common send one message each to a topic
// that may not be there yet, all at the same time. Prints how many were acknowledged.
'use strict'
const { Kafka, logLevel, Partitioners } = require('kafkajs')

const [address, topic, prefix, count] = process.argv.slice(2)

const one = async i => {
  const kafka = new Kafka({ clientId: prefix + i, brokers: [address], logLevel: logLevel.NOTHING, retry: { retries: 12, initialRetryTime: 100 } })
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: true })
  await producer.connect()
  await producer.send({ topic, acks: -1, messages: [{ value: prefix + i }] })
  await producer.disconnect()
}

Promise.all(Array.from({ length: Number(count) }, (_, i) => one(i))).then(
  done => console.log(done.length),
  err => { console.error(err); process.exit(1) })
