// Aborts work when its lock is lost: node-redis 5.12 or 6. See docs/guides/losing-a-lock.md.

import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { createClient } from 'redis'

const GONE = /^(NOTHELD|NOTOWNER|WRONGTYPE)/
const USABLE = 0.9 // of a lease: the work needs some time to end

class LockLost extends Error {}

// Keeps an acquired lock while work runs. When it is lost, the signal is aborted, and LockLost thrown.
async function whileHeld(client, key, token, leaseMs, work) {
    const stop = new AbortController()
    const lose = () => stop.abort(new LockLost(key))
    let end = setTimeout(lose, leaseMs * USABLE) // by the clock of the client
    let pending = false
    let wake = () => {}

    // The key or all keys have changed, or the connection is new.
    function notice(changed) {
        if (changed && String(changed) !== key) return
        pending = true
        wake()
    }

    async function ask() {
        pending = false // Before the requests: a message that comes during them counts.
        const asked = performance.now()
        const [, , info] = await Promise.all([
            client.sendCommand(['CLIENT', 'TRACKING', 'ON', 'NOLOOP']),
            client.sendCommand(['LOCK.EXTEND', key, token, 'PX', String(leaseMs)]),
            // From here on the server sends one message when the key changes.
            client.sendCommand(['LOCK.INFO', key]),
        ])
        if (info.owner !== token) lose()
        if (stop.signal.aborted) return
        clearTimeout(end)
        end = setTimeout(lose, asked + leaseMs * USABLE - performance.now())
    }

    async function keep() {
        while (!stop.signal.aborted) {
            if (pending) {
                await ask().catch(error => GONE.test(error.message) ? lose() : sleep(100).then(notice))
            } else {
                const pause = setTimeout(notice, leaseMs / 3)
                await new Promise(resolve => { wake = resolve })
                clearTimeout(pause)
            }
        }
    }

    client.on('invalidate', notice).on('ready', notice)
    try {
        await ask()
        keep()
        const result = await work(stop.signal)
        stop.signal.throwIfAborted()
        return result
    } catch (error) {
        stop.signal.throwIfAborted()
        throw error
    } finally {
        client.off('invalidate', notice).off('ready', notice)
        clearTimeout(end)
        stop.abort()
        wake()
    }
}

// Example
async function work(signal) {
    console.log('the door is ours')
    for (let step = 0; step < 20; step++) await sleep(100, undefined, { signal })
}

async function workAlone(client) {
    const token = randomBytes(16).toString('hex')
    if (await client.sendCommand(['LOCK.ACQUIRE', 'door', token, 'PX', '30000']) !== 1) return
    try {
        await whileHeld(client, 'door', token, 30000, work)
    } finally {
        // An error after finished work: the lock was lost in the last moment.
        await client.sendCommand(['LOCK.RELEASE', 'door', token])
    }
    console.log('all is done')
}

const client = createClient({ url: 'redis://127.0.0.1:6379', RESP: 3, emitInvalidate: true })
client.on('error', error => console.error(error.message))
await client.connect()
await workAlone(client).catch(error => console.log('the door is lost:', error.message))
client.destroy()
