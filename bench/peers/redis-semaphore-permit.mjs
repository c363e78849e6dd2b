// redis-semaphore's Semaphore with its defaults: it polls every 10 ms, for 10 s, and has a lease of 10 s.

import Redis from 'ioredis'
import { Semaphore, TimeoutError } from 'redis-semaphore'
import { run } from './worker.mjs'

await run('redis-semaphore', (port, permits) => {
    const client = new Redis(port, '127.0.0.1')
    return async key => {
        const semaphore = new Semaphore(client, key, permits)
        try {
            await semaphore.acquire()
        } catch (error) {
            if (error instanceof TimeoutError) return undefined
            throw error
        }
        return () => semaphore.release()
    }
})
