// A permit of the module's semaphore by raw commands of ioredis.

import { randomBytes } from 'node:crypto'
import Redis from 'ioredis'
import { run } from './worker.mjs'

await run('ioredis', (port, permits) => {
    const client = new Redis(port, '127.0.0.1')
    return async key => {
        const token = randomBytes(16).toString('hex')
        const granted = await client.call('LOCK.SHARE', key, token, 'PX', 30000, 'LIMIT', permits, 'BLOCK', 20000)
        return granted ? () => client.call('LOCK.RELEASE', key, token) : undefined
    }
})
