// Waits for a lock in slices: node-redis 5.12 or 6 (npm install redis). destroy() closes the connection, which is the way to cancel a wait.
// While the server is down, requests fail, and the client reconnects. A keyPrefix (6) is not added to these commands: write the whole
// key. See docs/guides/clients.md.

import { randomBytes } from 'node:crypto'
import { createClient } from 'redis'

const SLICE_MS = 2000
const client = createClient({ socket: { port: 6379 }, disableOfflineQueue: true })
client.on('error', () => {}) // the caller of a failed request gets its error
await client.connect()

async function withLock(key, { leaseMs, patienceMs }, work) {
    const token = randomBytes(16).toString('hex')
    const waiting = client.duplicate({ socket: { ...client.options.socket, reconnectStrategy: false } })
    waiting.on('error', () => {})
    const end = Date.now() + patienceMs
    let held = false
    try {
        await waiting.connect()
        for (let left = patienceMs; !held && left > 0; left = end - Date.now()) {
            const block = Math.min(left, SLICE_MS)
            held = await waiting.sendCommand(['LOCK.ACQUIRE', key, token, 'PX', `${leaseMs}`, 'BLOCK', `${block}`]) === 1
        }
        if (held) await work(token)
        return held
    } finally {
        waiting.destroy()
        await client.sendCommand(['LOCK.RELEASE', key, token]).catch(error => {
            if (held || !/^NOT(HELD|OWNER)/.test(error.message)) throw error
        })
    }
}

await withLock('door', { leaseMs: 30000, patienceMs: 20000 }, async () => {
    console.log('the door is ours')
})
client.destroy()
