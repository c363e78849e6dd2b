// The locks of the npm packages, with their defaults. Each has the package whose version is shown, and a function of the server's
// port and of the permits of each lock. That returns a function which acquires the lock of a key, and returns what releases it,
// or undefined if the package gave up.

import { randomBytes } from 'node:crypto'
import Redis from 'ioredis'
import Redlock from 'redlock'
import { Mutex, Semaphore, TimeoutError } from 'redis-semaphore'
import { createLock, IoredisAdapter, LockAcquisitionError } from 'redlock-universal'

const open = port => new Redis(port, '127.0.0.1')

// Returns undefined if the error is of that class.
async function unless(giveUp, attempt) {
    try {
        return await attempt()
    } catch (error) {
        if (error instanceof giveUp) return undefined
        throw error
    }
}

const report = error => console.error(error.message)

export const packages = {
    // It polls every 10 ms, for 10 s, and has a lease of 10 s.
    'redis-semaphore': {
        distribution: 'redis-semaphore',
        connect(port, permits) {
            const client = open(port)
            return key => unless(TimeoutError, async () => {
                const lock = permits > 1 ? new Semaphore(client, key, permits) : new Mutex(client, key)
                await lock.acquire()
                return () => lock.release()
            })
        },
    },
    // It tries 10 times more, every 100 to 300 ms. The lease of 1 s is that of its documentation.
    redlock: {
        distribution: 'redlock',
        connect(port) {
            const redlock = new Redlock([open(port)])
            redlock.on('clientError', report)
            return key => unless(Redlock.LockError, async () => {
                const lock = await redlock.lock(key, 1000)
                return () => lock.unlock().catch(report)
            })
        },
    },
    // It tries 3 times more, about every 100 ms. The lease of 30 s is that of its documentation.
    'redlock-universal': {
        distribution: 'redlock-universal',
        connect(port) {
            const adapter = new IoredisAdapter(open(port))
            return key => unless(LockAcquisitionError, async () => {
                const lock = createLock({ adapter, key, ttl: 30000 })
                const handle = await lock.acquire()
                return () => lock.release(handle)
            })
        },
    },
    // The commands of the module.
    commands: {
        distribution: 'ioredis',
        connect(port, permits) {
            const client = open(port)
            const ask = permits > 1 ? ['LOCK.SHARE', 'LIMIT', permits] : ['LOCK.ACQUIRE']
            return async key => {
                const token = randomBytes(16).toString('hex')
                const [command, ...limit] = ask
                const granted = await client.call(command, key, token, 'PX', 30000, ...limit, 'BLOCK', 20000)
                return granted ? () => client.call('LOCK.RELEASE', key, token) : undefined
            }
        },
    },
}
