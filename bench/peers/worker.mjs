// One client of a contest: takes one lock again and again, as bench/src/sections/packages/worker.rs asks it to.

import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const now = () => process.hrtime.bigint()

// Exact to some microseconds, where setTimeout knows whole milliseconds only.
const asleep = new Int32Array(new SharedArrayBuffer(4))
const sleep = us => Atomics.wait(asleep, 0, 0, us / 1000)

function version(name) {
    const description = new URL(`node_modules/${name}/package.json`, import.meta.url)
    return JSON.parse(readFileSync(description)).version
}

// `connect(port, permits)` gives a function that takes the lock of a key, or one of its permits, and returns what releases
// it, or undefined: it gave up.
export async function run(name, connect) {
    const [port, key, holdUs, permits] = process.argv.slice(2)
    const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
    const acquire = connect(Number(port), Number(permits))
    // Connects, and makes the server know the scripts.
    const warm = await acquire(`${key}:warm-up:${now()}`)
    await warm()
    console.log(`ready ${version(name)}`)

    const until = BigInt((await input.next()).value)
    const attempts = []
    for (let begun = now(); begun < until; begun = now()) {
        const release = await acquire(key)
        const granted = now()
        if (!release) {
            attempts.push(`gave-up ${begun}`)
            continue
        }
        sleep(Number(holdUs))
        attempts.push(`held ${begun} ${granted} ${now()}`)
        await release()
    }

    console.log([...attempts, 'done'].join('\n'))
    // The connection stays open while the server's counters are read.
    await input.next()
    process.exit()
}
