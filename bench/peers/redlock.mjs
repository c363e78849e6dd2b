// redlock with its defaults on one server: it tries 10 times more, every 100 to 300 ms, then gives up. The lease of 1 s is
// that of its documentation.

import Redis from 'ioredis'
import Redlock from 'redlock'
import { run } from './worker.mjs'

await run('redlock', port => {
    const redlock = new Redlock([new Redis(port, '127.0.0.1')])
    redlock.on('clientError', error => {
        throw error
    })
    return async key => {
        try {
            const lock = await redlock.lock(key, 1000)
            return () => lock.unlock().catch(error => console.error(error.message))
        } catch (error) {
            if (error instanceof Redlock.LockError) return undefined
            throw error
        }
    }
})
