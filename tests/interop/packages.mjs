// Locks with the npm packages of today, as packages.py does with those in Python. It stands beside their node_modules.

import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'

const require = createRequire(process.cwd() + '/')
const Redis = require('ioredis')
const { Mutex, Semaphore, TimeoutError } = require('redis-semaphore')
const client = new Redis(Number(process.argv.at(-1)), '127.0.0.1')

// What is common to both versions of redlock, apart from the names.
function redlock(name, acquire, release, refusal) {
    const Redlock = require(name).default ?? require(name)
    const redlock = new Redlock([client])
    let lock
    return {
        async acquire(key, leaseS) {
            lock = await redlock[acquire](acquire === 'acquire' ? [key] : key, leaseS * 1000).catch(error => {
                if (error.name !== refusal) throw error
            })
            return lock
        },
        release: () => lock[release](),
    }
}

// `make(key, options)` makes a lock of redis-semaphore, here one that is not renewed.
function semaphore(make) {
    let lock
    return {
        async acquire(key, leaseS, patienceS) {
            lock = make(key, { lockTimeout: leaseS * 1000, acquireTimeout: patienceS * 1000, refreshInterval: 0 })
            return lock.acquire().then(() => true, error => {
                if (!(error instanceof TimeoutError)) throw error
            })
        },
        release: () => lock.release(),
    }
}

const packages = {
    redlock: redlock('redlock', 'lock', 'unlock', 'LockError'),
    'redlock-5': redlock('redlock-5', 'acquire', 'release', 'ExecutionError'),
    'redis-semaphore': semaphore((key, options) => new Mutex(client, key, options)),
    'redis-semaphore-permit': semaphore((key, options) => new Semaphore(client, key, 2, options)),
}

function version(name) {
    const { version } = JSON.parse(readFileSync(`node_modules/${name.replace('-permit', '')}/package.json`))
    return version.replace('v', '')
}

async function answer(name, order, key, leaseS, patienceS) {
    try {
        if (order === 'release') {
            await packages[name].release()
            return 'released'
        }
        const held = await packages[name].acquire(key, Number(leaseS), Number(patienceS))
        return held ? `held ${version(name)}` : 'gave up'
    } catch (error) {
        return error.name
    }
}

// Patience counts from the first request on, not from the connection.
await client.ping()
for await (const line of createInterface({ input: process.stdin })) {
    const words = line.split(' ')
    answer(...words).then(said => console.log(words[0], said))
}
process.exit()
