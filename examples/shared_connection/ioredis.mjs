// Waits for many locks on one connection: ioredis. See docs/guides/multiplexed-clients.md.

import { randomBytes } from 'node:crypto'
import Redis from 'ioredis'

const SILENCE_MS = 5000 // less than lock.rejoin-grace-ms
const random = () => randomBytes(16).toString('hex')

// Waits for many locks on one connection, and listens on another.
class Locks {
    #channel = 'locks:' + random()
    #waiters = new Map() // for each waiting token: the function for its next event

    constructor(port) {
        this.client = new Redis(port)
        this.listener = this.client.duplicate({ autoResubscribe: false })
        // Both reconnect by themselves.
        this.client.on('ready', () => this.#notifyAll('lost'))
        this.listener.on('ready', () => this.#subscribe())
        this.listener.on('smessage', (channel, message) => {
            const [event, , , token] = message.split(' ')
            this.#waiters.get(token)?.(event)
        })
    }

    async #subscribe() {
        try {
            await this.listener.ssubscribe(this.#channel)
            this.#notifyAll('lost')
        } catch (error) {
            // After a lost connection, the next one subscribes.
            if (error.name === 'ReplyError') this.listener.emit('error', error)
        }
    }

    #notifyAll(event) {
        for (const notify of this.#waiters.values()) notify(event)
    }

    async #ask(key, token, leaseMs, blockMs) {
        // Before the request, because the message may come before the reply.
        const event = new Promise(resolve => this.#waiters.set(token, resolve))
        const request = [key, token, 'PX', leaseMs, 'BLOCK', blockMs, 'NOTIFY', this.#channel]
        try {
            if (await this.client.call('LOCK.ACQUIRE', ...request) === 1) return 'granted'
        } catch (error) {
            // A new subscription will wake this wait.
            if (!error.message.startsWith('NOSUBSCRIBER')) throw error
        }
        const silence = setTimeout(this.#waiters.get(token), Math.min(SILENCE_MS, blockMs), 'lost')
        return event.finally(() => clearTimeout(silence))
    }

    // The token that holds the lock, or null.
    async acquire(key, { leaseMs, patienceMs, signal }) {
        const token = random()
        const end = Date.now() + patienceMs
        const stop = () => this.#waiters.get(token)?.('aborted')
        signal?.addEventListener('abort', stop)
        let event = 'lost'
        try {
            for (let left; event === 'lost' && !signal?.aborted && (left = end - Date.now()) > 0;) {
                event = await this.#ask(key, token, leaseMs, left)
            }
            return event === 'granted' ? token : null
        } finally {
            signal?.removeEventListener('abort', stop)
            this.#waiters.delete(token)
            // Withdraws.
            if (event !== 'granted') await this.release(key, token)
        }
    }

    async release(key, token) {
        await this.client.call('LOCK.RELEASE', key, token).catch(error => {
            // The lease has ended, or the request was sent twice.
            if (!/^NOT(HELD|OWNER)/.test(error.message)) throw error
        })
    }

    close() {
        this.client.disconnect()
        this.listener.disconnect()
    }
}

// Example
const locks = new Locks(6379)
const taken = new Set()
const fences = new Map()

function check(right, what) {
    if (!right) throw new Error('not ' + what)
}

async function holdAlone(key) {
    const token = await locks.acquire(key, { leaseMs: 30000, patienceMs: 60000 })
    check(token, 'left waiting')
    check(!taken.has(key), 'alone')
    taken.add(key)
    const fence = await locks.client.call('LOCK.FENCE', key, token, 'fence')
    check(fence > (fences.get(key) ?? 0), 'after all others')
    fences.set(key, fence)
    await new Promise(resolve => setTimeout(resolve, 5))
    taken.delete(key)
    await locks.release(key, token)
}

await Promise.all(Array.from({ length: 1000 }, (_, n) => holdAlone(`door:${n % 10}`)))
locks.close()
console.log('1000 tasks held a lock alone')
