// One process of a contest, as bench/src/contest/worker.rs describes it: its clients acquire and release locks.
//
//     worker.mjs PACKAGE PORT LOCKS FIRST CLIENTS HOLD_MS [PERMITS]

import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout } from 'node:timers/promises'
import { packages } from './locks.mjs'

const STRIDE = 1543
const now = () => process.hrtime.bigint()

const [name, port, path, first, clients, holdMs, permits] = process.argv.slice(2)
const { distribution, connect } = packages[name]
const locks = readFileSync(path, 'utf8').split('\n')

// Returns a line for each attempt of a client until that time.
async function attempts(number, acquire, until) {
    const lines = []
    let place = number * STRIDE
    for (let begun = now(); begun < until; begun = now()) {
        const lock = locks[place++ % locks.length]
        const release = await acquire(`lock:${lock}`)
        const granted = now()
        if (!release) {
            lines.push(`${number} ${lock} ${begun}`)
            continue
        }
        await setTimeout(Number(holdMs))
        lines.push(`${number} ${lock} ${begun} ${granted} ${now()}`)
        await release()
    }
    return lines
}

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const numbers = Array.from({ length: Number(clients) }, (_, n) => Number(first) + n)
const acquires = numbers.map(() => connect(Number(port), Number(permits ?? 1)))
for (const [n, acquire] of acquires.entries()) {
    // Connects, and lets the server know the scripts.
    const release = await acquire(`warm-up:${numbers[n]}`)
    await release()
}
const description = new URL(`node_modules/${distribution}/package.json`, import.meta.url)
console.log(`ready ${JSON.parse(readFileSync(description)).version}`)

const until = BigInt((await input.next()).value)
const lines = await Promise.all(acquires.map((acquire, n) => attempts(numbers[n], acquire, until)))
console.log([...lines.flat(), 'done'].join('\n'))
// Waits until the server's counters were read.
await input.next()
process.exit()
