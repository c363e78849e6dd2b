// redis-semaphore's Mutex with its defaults: it polls every 10 ms, for 10 s, and has a lease of 10 s.

import Redis from 'ioredis'
import { Mutex, TimeoutError } from 'redis-semaphore'
import { run } from './worker.mjs'

await run('redis-semaphore', port => {
    const client = new Redis(port, '127.0.0.1')
    return async key => {
        const mutex = new Mutex(client, key)
        try {
            await mutex.acquire()
        } catch (error) {
            if (error instanceof TimeoutError) return undefined
            throw error
        }
        return () => mutex.release()
    }
})
