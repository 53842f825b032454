// What the JavaScript programs of the client matrix share. The command line and the lines that they print: compat-tests/doc.go.
'use strict'
const [addresses, name, replicas, ...steps] = process.argv.slice(2)
const perCodec = 100
let passed = 0
let failed = 0
let told = 0
process.stdin.setEncoding('utf8')
process.stdin.on('data', text => { told += text.split('\n').length - 1 })

const say = (...words) => console.log(words.join(' '))
const check = (what, ok, detail) => {
  ok ? passed++ : failed++
  say(ok ? 'ok' : 'FAILED', what, ok ? '' : JSON.stringify(detail, (k, v) => typeof v === 'bigint' ? String(v) : v))
}
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const over = () => told > 0 && told-- > 0
const until = async (condition, seconds = 60) => {
  const end = Date.now() + seconds * 1000
  while (!await condition()) {
    if (Date.now() > end) return false
    await sleep(30)
  }
  return true
}
// insist does something again until it succeeds.
const insist = async step => {
  for (;;) {
    try {
      return await step()
    } catch (e) {
      say('again', e.message)
      await sleep(100)
    }
  }
}
const wait = async () => { while (!over()) await sleep(20) }

// flow sends numbers, 20 at a time, until told; send returns when all are acknowledged.
const flow = async send => {
  for (let n = 0; !over(); n += 20) {
    const values = Array.from({ length: 20 }, (_, i) => String(n + i))
    await send(values)
    say('acked', ...values)
    await sleep(0)
  }
}

// transactions makes transactions until told, every second one aborted. Where attempt throws, what became of it is unknown, and
// renew replaces the producer.
const transactions = async (attempt, renew) => {
  for (let i = 0; !over(); i++) {
    try {
      await attempt(i, [0, 1, 2].map(k => `${i}/${k}`), i % 2 === 0)
      say(i % 2 === 0 ? 'committed' : 'aborted', i)
    } catch (e) {
      say('unknown', i, e.message)
      await insist(renew)
    }
    await sleep(0)
  }
}

const run = async actions => {
  try {
    for (const step of steps) {
      say('step', step)
      const [kind, mode] = step.split(':')
      await actions[kind](mode)
    }
  } catch (e) {
    console.error(e)
    check('no error', false, e.message)
  }
  console.log(`${passed} passed, ${failed} failed`)
  process.exit(failed ? 1 : 0)
}

module.exports = { addresses: addresses.split(','), name, replicas: Number(replicas), perCodec, say, check, until, insist, wait, flow, transactions, run }
