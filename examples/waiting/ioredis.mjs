// Waits for a lock in slices: ioredis 5.11 or 6, iovalkey. Do not set commandTimeout: it rejects the promise, and the request
// waits on. A keyPrefix is not added to these commands: write the whole key. See docs/guides/clients.md.

import { randomBytes } from 'node:crypto'
import Redis from 'ioredis'

const SLICE_MS = 2000
const client = new Redis(6379)

async function withLock(key, { leaseMs, patienceMs, signal }, work) {
    const token = randomBytes(16).toString('hex')
    const waiting = client.duplicate()
    const stop = () => waiting.disconnect()
    signal?.addEventListener('abort', stop)
    const end = Date.now() + patienceMs
    let held = false
    try {
        for (let left = patienceMs; !held && left > 0; left = end - Date.now()) {
            const block = Math.min(left, SLICE_MS)
            held = (await waiting.call('LOCK.ACQUIRE', key, token, 'PX', leaseMs, 'BLOCK', block)) === 1
        }
        stop()
        if (held) await work(token)
        return held
    } finally {
        stop()
        signal?.removeEventListener('abort', stop)
        await client.call('LOCK.RELEASE', key, token).catch(error => {
            if (held || !/^NOT(HELD|OWNER)/.test(error.message)) throw error
        })
    }
}

await withLock('door', { leaseMs: 30000, patienceMs: 20000 }, async () => {
    console.log('the door is ours')
})
client.disconnect()
