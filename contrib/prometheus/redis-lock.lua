#!lua flags=no-writes
-- Metrics of redis-lock for redis_exporter, which runs this on the server (-script) and shows each pair of the reply as
-- redis_script_values{key="name"}:
--
--   lock_*                                   the fields of INFO lock
--   lock_suspended_by_REASON                 1 if no lock is granted for this reason, else 0
--   lock_errors_CODE                         how often the server has answered with that error, from INFO errorstats
--   lock_queue_waiters dbN KEY               what waits for the locks that are waited for most,
--   lock_queue_longest_wait_ms dbN KEY       from LOCK.QUEUES
--
-- A server without the module answers with nothing, and so does not fail. With the first line it answers in a CLIENT PAUSE, too.

-- How many locks of a database are named, 0 for none. Each name is a time series while it is there.
local MOST = 10
-- How much of a key is shown, in bytes.
local LONGEST = 80
-- From 0 on, so that the first error is a rise.
local ERRORS = {
    'NOTHELD', 'NOTOWNER', 'NOLEASE', 'HOLDMISMATCH', 'OTHERFORM', 'LEASELIMIT', 'SESSIONFULL', 'QUEUEFULL',
    'NOSUBSCRIBER', 'TRYAGAIN', 'NOREPLICAS', 'MISCONF', 'CLUSTERDOWN',
}
local REASONS = { 'replicas', 'paused', 'recovery', 'stall', 'refused' }

local metrics = {}

local function add(name, value)
    metrics[#metrics + 1] = name
    metrics[#metrics + 1] = tostring(value)
end

-- A label is a text, and a key is any bytes.
local function shown(key)
    return (key:sub(1, LONGEST):gsub('[^!-~]', function(byte) return ('\\x%02x'):format(byte:byte()) end))
end

local function add_queues(database)
    redis.call('SELECT', database)
    for _, queue in ipairs(redis.call('LOCK.QUEUES', 'COUNT', MOST)) do
        local field = {}
        for i = 1, #queue, 2 do field[queue[i]] = queue[i + 1] end
        local name = ('db%s %s'):format(database, shown(field['key']))
        add('lock_queue_waiters ' .. name, field['waiters'])
        add('lock_queue_longest_wait_ms ' .. name, field['longest-wait-ms'])
    end
end

local info = redis.call('INFO', 'lock', 'errorstats', 'keyspace')
if not info:find('lock_waiters:', 1, true) then return metrics end

for name, value in info:gmatch('(lock_[%w_]+):(%d+)') do add(name, value) end
local suspended_by = info:match('lock_suspended_by:(%a+)')
for _, reason in ipairs(REASONS) do
    add('lock_suspended_by_' .. reason, reason == suspended_by and 1 or 0)
end
for _, code in ipairs(ERRORS) do
    add('lock_errors_' .. code, info:match('errorstat_' .. code .. ':count=(%d+)') or 0)
end
if MOST > 0 then
    for database in info:gmatch('db(%d+):keys=') do add_queues(database) end
end
return metrics
