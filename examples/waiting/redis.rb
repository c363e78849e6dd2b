# Waits for a lock in slices: redis 4.8 for Ruby. An interrupt ends the wait. See docs/guides/clients.md.

require 'redis'
require 'securerandom'

SLICE_MS = 2000

def now_ms = Process.clock_gettime(Process::CLOCK_MONOTONIC, :millisecond)

def with_lock(client, key, lease_ms:, patience_ms:)
  token = SecureRandom.hex
  waiting = client.dup
  held = false
  finish = now_ms + patience_ms
  while !held && (left = finish - now_ms).positive?
    block = [left, SLICE_MS].min
    held = waiting.call('LOCK.ACQUIRE', key, token, 'PX', lease_ms, 'BLOCK', block) == 1
  end
  yield token if held
  held
ensure
  waiting&.close
  begin
    client.call('LOCK.RELEASE', key, token)
  rescue Redis::CommandError => error
    raise if held || !error.message.start_with?('NOTHELD', 'NOTOWNER')
  end
end

client = Redis.new(port: 6379)
with_lock(client, 'door', lease_ms: 30000, patience_ms: 20000) { puts 'the door is ours' }
