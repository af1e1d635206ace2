"""The scripts by which Redis adds, changes and removes a job, each in one step."""

# KEYS: job, index of its state, index of all, the owner's set of its state, outbox, config, the owner's
# configs, content pointer, then the list of each message. ARGV: id, limit of the owner's set or "", spec,
# record, revision, targets it waits for, digest of the config, its size, limit of the owner's configs in
# bytes or "", "1" if its text is given, the text, "1" if nothing is to be added where the content pointer
# is set, the model's family or "", the number of messages, they, then the events for callers. Returns 1, a
# refusal, or what the pointer names. A message that Redis refuses, because something else lies at its key,
# undoes nothing: the sweep sends another.
ADD = """
local made = ARGV[12] ~= '' and redis.call('GET', KEYS[8])
if made then return made end
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if ARGV[2] ~= '' and redis.call('SCARD', KEYS[4]) >= tonumber(ARGV[2]) then return -1 end
if ARGV[10] == '' and redis.call('EXISTS', KEYS[6]) == 0 then return -2 end
if redis.call('HEXISTS', KEYS[7], ARGV[7]) == 0 then
  local kept = tonumber(redis.call('HGET', KEYS[7], 'bytes') or 0)
  if ARGV[9] ~= '' and kept + tonumber(ARGV[8]) > tonumber(ARGV[9]) then return -3 end
  redis.call('HINCRBY', KEYS[7], 'bytes', ARGV[8])
end
redis.call('HINCRBY', KEYS[7], ARGV[7], 1)
if ARGV[10] == '1' then redis.call('HSETNX', KEYS[6], 'text', ARGV[11]) end
redis.call('HINCRBY', KEYS[6], 'jobs', 1)
redis.call('HSET', KEYS[1], 'spec', ARGV[3], 'record', ARGV[4], 'revision', ARGV[5], 'targets', ARGV[6])
if ARGV[13] ~= '' then redis.call('HSET', KEYS[1], 'family', ARGV[13]) end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
redis.call('SADD', KEYS[4], ARGV[1])
local messages = tonumber(ARGV[14])
for i = 15 + messages, #ARGV do redis.call('RPUSH', KEYS[5], ARGV[i]) end
for i = 1, messages do redis.pcall('LPUSH', KEYS[8 + i], ARGV[14 + i]) end
return 1
"""

# KEYS: job, indexes of the old state and of the new one, the owner's sets of both, leases, outbox, content
# pointer, releases, models. ARGV: id, expected revision, new revision, record, end of lease or "", limit of
# the owner's new set or "", "1" if the content pointer is to be set, model to release or "", targets it waits
# for or runs for, then the events for callers.
REPLACE = """
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[2] then return 0 end
if ARGV[6] ~= '' and redis.call('SCARD', KEYS[5]) >= tonumber(ARGV[6]) then return -1 end
redis.call('HSET', KEYS[1], 'record', ARGV[4], 'revision', ARGV[3], 'targets', ARGV[9])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('SADD', KEYS[5], ARGV[1])
if ARGV[5] == '' then redis.call('ZREM', KEYS[6], ARGV[1])
else redis.call('ZADD', KEYS[6], ARGV[5], ARGV[1]) end
if ARGV[7] == '1' then redis.call('SET', KEYS[8], ARGV[1]) end
if ARGV[8] ~= '' then
  redis.call('ZADD', KEYS[9], 0, ARGV[1])
  redis.call('ZADD', KEYS[10], 0, ARGV[8])
end
for i = 10, #ARGV do redis.call('RPUSH', KEYS[7], ARGV[i]) end
return 1
"""

# KEYS: job, index of its state, index of all, the owner's set of its state, releases of its model, content
# pointer, config, the owner's configs. ARGV: id, expected revision, digest of the config or "" if the job
# holds the text itself, its size.
REMOVE = """
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
if redis.call('GET', KEYS[6]) == ARGV[1] then redis.call('DEL', KEYS[6]) end
if ARGV[3] == '' then return 1 end
if redis.call('HINCRBY', KEYS[7], 'jobs', -1) <= 0 then redis.call('DEL', KEYS[7]) end
if redis.call('HINCRBY', KEYS[8], ARGV[3], -1) <= 0 then
  redis.call('HDEL', KEYS[8], ARGV[3])
  redis.call('HINCRBY', KEYS[8], 'bytes', 0 - ARGV[4])
  if redis.call('HLEN', KEYS[8]) == 1 then redis.call('DEL', KEYS[8]) end
end
return 1
"""

# Refusals of ADD; QUEUE_FULL also of REPLACE.
EXISTS, QUEUE_FULL, CONFIG_MISSING, CONFIGS_FULL = 0, -1, -2, -3
