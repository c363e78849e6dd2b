// Searches the site of the documents as a reader does, by the program and the index of the site, and checks that common words lead to
// the right page: it is among the first three results. `make docs` calls it with the folder of the site.

import { readFileSync, readdirSync } from 'node:fs'
import { createContext, runInContext } from 'node:vm'

// A reader reads no more of them.
const SHOWN = 3
const PAGES = {
    'docs/guides/slow-locks.html': ['stuck', 'hung', 'who holds', 'troubleshooting', 'unlock stuck lock'],
    'docs/commands/lock.release.html': ['unlock'],
    'docs/guides/recipes.html': ['leader election', 'cron', 'single flight', 'latch'],
    'docs/guides/upgrading.html': ['downtime', 'upgrade'],
    'docs/guides/migration.html': ['rollback', 'migrate', 'django', 'celery', 'key prefix'],
    'docs/guides/sessions.html': ['proxy', 'load balancer', 'watchdog'],
    'docs/guides/tutorial.html': ['tutorial', 'set nx'],
    'docs/guides/several-locks.html': ['deadlock'],
    'docs/guides/failover.html': ['two holders', 'failover', 'master fails'],
    'docs/guides/losing-a-lock.html': ['lost lock'],
    'docs/guides/comparison.html': ['redlock', 'etcd', 'zookeeper', 'redisson', 'alternatives'],
}

const folder = process.argv[2]
const context = createContext({ console })
runInContext('var window = globalThis, search = {}', context)
for (const part of ['elasticlunr', 'searchindex']) {
    const file = readdirSync(folder).find(name => name.startsWith(`${part}-`) && name.endsWith('.js'))
    runInContext(readFileSync(`${folder}/${file}`, 'utf8'), context)
}
const { search, elasticlunr } = context
const index = elasticlunr.Index.load(search.index)

let failures = 0
for (const [page, queries] of Object.entries(PAGES)) {
    for (const query of queries) {
        const results = index.search(query, search.search_options).slice(0, SHOWN).map(({ ref }) => search.doc_urls[ref])
        if (results.some(url => url.split('#')[0] === page)) continue
        failures += 1
        console.error(`"${query}" does not lead to ${page}, but to ${results.join(', ') || 'nothing'}`)
    }
}
process.exit(failures && 1)
