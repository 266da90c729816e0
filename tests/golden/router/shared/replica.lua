-- Managed by Apiary; changes made here are overwritten.
-- Which replica gets a request; docs/decisions/0010-haproxy-affinity.md of Apiary says why so.
-- A session has the same replica at every router: each replica is scored by a hash of its name and
-- the session, and the highest usable score wins, so that one that leaves moves only its own
-- sessions. A request of no session gets the replica with the fewest requests.

-- A session leaves a replica that has more than this share of its limit and, at once, more than
-- this many times the average.
local SHARE, FACTOR = 0.25, 1.25
-- Of more replicas than these only some are looked at for the fewest requests.
local CANDIDATES = 16

-- Of a limit that was measured (bench's of requests, or what first tokens say of the load) a new session may have
-- this share, by its key's priority; one that runs may wait beyond it, at its own replica.
local CROWDED, SPARE = 2, 0.35
local NEW, RUNNING = { [-2] = 2, [0] = 1, [2] = 0.5, }, 8
-- Backends whose replicas' limit is what bench found within the SLO.
local WITHIN = { ["small"] = true, }
-- What is returned of a request that is refused.
local REFUSED = "-"
-- Requests are counted by the kind of their key, and by whether their session's own replica gets them.
local KINDS, PLACES = { "header", "body", "prompt", "address", "none", }, { "own", "other" }
local DEPLOYMENTS = { "qwen3-235b", "small", }
-- Adding up is not atomic, so each thread counts for itself; HAProxy has no more in a group.
local THREADS = 64

local known = {}

-- FNV-1a, 64 bits
local function hash(text)
    local value = 0xcbf29ce484222325
    for position = 1, #text do
        value = (value ~ text:byte(position)) * 0x100000001b3
    end
    return value
end

-- The finalizer of splitmix64
local function mix(value)
    value = (value ~ (value >> 30)) * 0xbf58476d1ce4e5b9
    value = (value ~ (value >> 27)) * 0x94d049bb133111eb
    return value ~ (value >> 31)
end

-- All that never changes but the limits: a reload starts anew.
local function pool_of(backend, ask)
    local pool = known[backend]
    if pool == nil then
        local sum = 0
        pool = {}
        for name, server in pairs(core.backends[backend].servers) do
            local weight, most = ask:srv_iweight(name), server:get_maxconn()
            pool[#pool + 1] = {
                name = name, server = server, seed = hash(name), most = most, weight = weight,
                within = WITHIN[backend] and most,
            }
            sum = sum + weight
        end
        for _, one in ipairs(pool) do
            one.part = one.weight * #pool / sum
        end
        known[backend] = pool
    end
    return pool
end

-- Names alone, never backend/name: HAProxy 2.6 cuts the slash out of Lua's own string.
local function requests_of(one, ask)
    return ask:srv_conn(one.name) + ask:srv_queue(one.name)
end

local function usable(one, weight, ask)
    -- A number in some versions of HAProxy, and 0 is true in Lua
    local draining = one.server:is_draining()
    return weight > 0 and (draining == 0 or draining == false) and ask:srv_is_up(one.name) ~= 0
end

-- Whether a replica has all that it may have before one more comes, and whether that was measured.
local function full(one, share, txn)
    local within = one.within and math.max(1, math.ceil(one.within * share))
    return requests_of(one, txn.f) >= (within or one.most), within and true or false
end

local function takes(one, backend, draw, share, txn)
    local ask = txn.f
    -- Small during slow start, which lets sessions in one by one
    local weight = ask:srv_weight(one.name)
    if draw % one.weight >= weight or not usable(one, weight, ask) then
        return false, false
    end
    local requests = requests_of(one, ask)
    local crowded, measured = full(one, share, txn)
    if measured or requests < one.most * SHARE then
        return not crowded, true
    end
    local average = ask:be_conn(backend) / math.max(1, ask:nbsrv(backend))
    return not crowded and requests < math.ceil(FACTOR * average * one.part), true
end

-- Weighted rendezvous hashing: each replica wins in proportion to its weight. The second value is the
-- session's own where that is full.
local function of_session(pool, backend, session, share, txn)
    local refused, own
    while true do
        local best, highest, draw = nil, 0.0, 0
        for _, one in ipairs(pool) do
            if refused == nil or not refused[one] then
                local value = mix(session ~ one.seed)
                local score = -one.weight / math.log(((value >> 11) + 0.5) / 9007199254740992.0)
                if score > highest then
                    best, highest, draw = one, score, value & 0xffff
                end
            end
        end
        if best == nil then
            return nil, own
        end
        local taken, up = takes(best, backend, draw, share, txn)
        if taken then
            return best, own
        end
        if up then
            own = own or best
        end
        refused = refused or {}
        refused[best] = true
    end
end

local function of_nobody(pool, share, txn)
    local ask, count = txn.f, #pool
    local best, least, busy = nil, nil, nil
    -- Equals are chosen by chance, or all routers would choose the same.
    local first = math.random(count)
    for step = 1, math.min(count, CANDIDATES) do
        local one = pool[(first + step) % count + 1]
        local crowded, measured = full(one, share, txn)
        local weight = ask:srv_weight(one.name)
        if crowded then
            busy = measured and usable(one, weight, ask) and one or busy
        else
            local requests = (requests_of(one, ask) + 1) / weight
            if (least == nil or requests < least) and usable(one, weight, ask) then
                best, least = one, requests
            end
        end
    end
    return best, busy
end

local function count_of(thread, backend, kind, place)
    return ("proc.apiary_%d_%016x_%s_%s"):format(thread, hash(backend), kind, place)
end

local counts = {}

local function count(txn, backend, kind, place)
    local key = backend .. "/" .. kind .. place
    local one = counts[key]
    if one == nil then
        one = { name = count_of(core.thread % THREADS, backend, kind, place), value = 0 }
        counts[key] = one
    end
    one.value = one.value + 1
    txn:set_var(one.name, one.value)
end

-- What all threads counted of these.
local function sum_of(applet, backend, kind, place)
    local sum = 0
    for thread = 0, THREADS - 1 do
        sum = sum + (applet:get_var(count_of(thread, backend, kind, place)) or 0)
    end
    return sum
end

-- What all threads counted, for Prometheus.
local function counted(applet)
    local lines = { "# TYPE apiary_router_requests_total counter" }
    for _, backend in ipairs(DEPLOYMENTS) do
        for _, kind in ipairs(KINDS) do
            for _, place in ipairs(PLACES) do
                lines[#lines + 1] = ('apiary_router_requests_total{proxy="%s",key="%s",at="%s"} %d'):format(
                    backend, kind, place, sum_of(applet, backend, kind, place))
            end
        end
    end
    local text = table.concat(lines, "\n") .. "\n"
    applet:set_status(200)
    applet:add_header("content-type", "text/plain; version=0.0.4")
    applet:add_header("content-length", #text)
    applet:start_response()
    applet:send(text)
end

core.register_service("apiary_counts", "http", counted)

-- The name of the replica; nothing where all that it may be are full and it may wait for any.
local function replica(txn, backend)
    local ask = txn.f
    local pool = pool_of(backend, ask)
    local session = math.tointeger(tonumber(ask:req_fhdr("X-Apiary-Session")))
    local running = txn:get_var("txn.running")
    local share = running and RUNNING or NEW[txn:get_var("txn.place") or 0]
    local one, own
    if session ~= nil then
        one, own = of_session(pool, backend, session, share, txn)
        own = own or one
        if one ~= nil and running then
            -- Its cache is worth a wait at its own replica, but not while another has room to spare.
            local crowded, measured = full(one, CROWDED, txn)
            if crowded and measured then
                one = of_nobody(pool, SPARE, txn) or one
            end
        end
    end
    local busy = own
    if one == nil and not (running and own) then
        one, busy = of_nobody(pool, share, txn)
    end
    if one == nil and busy ~= nil then
        local _crowded, measured = full(busy, share, txn)
        if measured then
            return REFUSED
        end
        -- Its cache is worth the wait.
        one = running and busy or nil
    end
    count(txn, backend, txn:get_var("txn.kind") or "none", one ~= nil and one == own and "own" or "other")
    if one == nil then
        -- For HAProxy nil would be a value.
        return
    end
    return one.name
end

core.register_fetches("apiary_replica", replica)

-- What reads JSON counts its steps, so that no body costs more than its reader allows.
local QUOTE, BACKSLASH, LIST, LIST_END, OBJECT, OBJECT_END = string.byte('"\\[]{}', 1, 6)
-- The steps that are left, where none are the text counts as cut there; and the next quote that is known.
local left, cut, quote = 0, 0, 0

local function begin(text, steps)
    left, cut, quote = steps, #text, 0
end

-- Count a step; return whether there was none left.
local function spent(position)
    left = left - 1
    if left == 0 then
        cut = position
    end
    return left <= 0
end

-- Count what a pattern costs up to the next quote, where each ends at the latest: a plain search is a hundred
-- times as fast. Return whether there was none left.
local function dear(text, position)
    if quote < position then
        quote = string.find(text, '"', position, true) or #text + 1
        left = left - (quote - position) // 8
        if left <= 0 then
            cut = math.min(cut, position)
        end
    end
    return left <= 0
end

-- Of the positions below each is nil where the text ends first.
local function string_end(text, at)
    while true do
        at = string.find(text, '"', at + 1, true)
        if at == nil or spent(at) then
            return nil
        end
        local before = at - 1
        while string.byte(text, before) == BACKSLASH do
            before = before - 1
        end
        if (at - before) % 2 == 1 then
            return at
        end
    end
end

-- Where this many open brackets are closed, from a position outside of strings.
local function closed(text, position, depth)
    while true do
        local at = not dear(text, position) and string.find(text, '["%[%]{}]', position)
        if not at or spent(at) then
            return nil
        end
        local char = string.byte(text, at)
        if char == QUOTE then
            at = string_end(text, at)
            if at == nil then
                return nil
            end
        elseif char == LIST or char == OBJECT then
            depth = depth + 1
        else
            depth = depth - 1
            if depth == 0 then
                return at
            end
        end
        position = at + 1
    end
end

local function value_end(text, at)
    local char = string.byte(text, at)
    if char == QUOTE then
        return string_end(text, at)
    elseif char == LIST or char == OBJECT then
        return closed(text, at + 1, 1)
    end
    local after = not dear(text, at) and string.find(text, '[",%]}%s]', at)
    return after and after - 1
end

-- A value, or what is there of one that is cut, and where that ends.
local function value(text, at)
    local last = value_end(text, at) or cut
    return string.sub(text, at, last), last
end

-- Call visit(name, position) for each member of an object or item of a list, and return where it
-- ends. A visitor that has read the value returns where that ends.
local function walk(text, at, visit)
    local named = string.byte(text, at) == OBJECT
    local position = at + 1
    while true do
        position = not dear(text, position) and string.find(text, "[^%s,]", position) or nil
        local char = position and string.byte(text, position)
        if char == nil or char == LIST_END or char == OBJECT_END then
            return position
        end
        local name
        if named then
            local last = char == QUOTE and string_end(text, position)
            if not last then
                return nil
            end
            name = string.sub(text, position + 1, last - 1)
            position = not dear(text, last + 1) and string.match(text, "^%s*:%s*()", last + 1) or nil
            if position == nil or position > #text then
                return nil
            end
        end
        local last = visit(name, position) or value_end(text, position)
        if last == nil or spent(last) then
            return nil
        end
        position = last + 1
    end
end

-- The session of a request, from the head of its body: a field that names it, else all that it says up
-- to the end of its first user message. That is the same in every turn, at every router.
local FIELDS = { "prompt_cache_key", }
-- The work that one body may cost.
local STEPS = 8192
local LONGEST = 512

-- Where the next place is at which a field's mark stands, or nil. A search looks for its needle's
-- first byte: quotes are frequent in code, so it begins at a byte that is rare, "_" or "v".
local function marked(text, mark, at)
    local needle = string.match(mark, "[_v].*") or mark
    local after = at
    for _ = 1, 16 do
        local _, last = string.find(text, needle, after, true)
        if last == nil or (last - #mark >= at - 1 and string.sub(text, last - #mark + 1, last) == mark) then
            return last
        end
        after = last + 1
    end
    -- Other names end alike, and often.
    local _, last = string.find(text, mark, at, true)
    return last
end

-- The first value of a field in the text. Within a string its quotes would be escaped; that of a
-- tool's input is as good, for it stays the first in every later turn.
local function named(text, field)
    local mark, at = '"' .. field .. '"', 1
    for _ = 1, 4 do
        local last = marked(text, mark, at)
        local first = last and string.match(text, "^%s*:%s*()", last + 1)
        if first == nil then
            return ""
        end
        -- OpenAI's conversation is its id, or an object that begins with it.
        local id = string.sub(text, first, first + LONGEST)
        id = string.match(id, '^[{]%s*"id"%s*:%s*(.*)') or id
        local found = string.match(id, '^"([^"\\]+)"') or string.match(id, "^%d+")
        if found ~= nil then
            return found
        end
        at = last + 1
    end
    return ""
end

local function session(txn)
    local text = txn:get_var("txn.head")
    local start = string.match(text, "^%s*(){")
    if start == nil then
        return ""
    end
    for _, field in ipairs(FIELDS) do
        local found = named(text, field)
        if found ~= "" then
            txn:set_var("txn.kind", "body")
            return found
        end
    end
    return ""
end

core.register_fetches("apiary_session", session)

-- The model that a request names, and the deployment that serves it.
local MODELS = {
    { name = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", deployment = "qwen3-235b" },
    { name = "org/small", deployment = "small" },
    { name = "small", deployment = "small" },
    { name = "sql", deployment = "small" },
}
-- The work that one body may cost; where the search for the model took all of it, only this many bytes of
-- the end of the body are looked at, and only this many names in them.
local MODEL_STEPS, TAIL, NAMES = 8192, 262144, 1024
-- A form has no more parts than this before it names the model; longer names than this are no model's.
local PARTS, NAME = 64, 512
local CREATED = os.time()

local deployments = {}
for _, one in ipairs(MODELS) do
    deployments[one.name] = one.deployment
end

-- JSON may escape the slash, and any letter.
local function unescaped(text)
    return (string.gsub(string.gsub(text, "\\/", "/"), "\\u00([2-7]%x)", function(digits)
        return string.char(tonumber(digits, 16))
    end))
end

-- The text of the string that begins there, or so much of it that no model has the name; nil of another value.
local function name_at(text, at)
    local found, last = string.match(string.sub(text, at, at + NAME), '^"([^"%c]*)(.?)')
    return (last == '"' or #(found or "") == NAME) and unescaped(found) or nil
end

-- The name in the last part of a body that was too much to read: a nested field may have the same name
-- as the one that counts, but hardly that of another model that is served here.
local function at_end(text)
    local found, at = "", 1
    text = string.sub(text, -TAIL)
    for _ = 1, NAMES do
        local _, last = string.find(text, '"model"', at, true)
        if last == nil then
            return found
        end
        local gap = string.match(string.sub(text, last + 1, last + NAME), "^%s*:%s*()")
        local name = gap and name_at(text, last + gap)
        if name and deployments[found] == nil then
            found = name
        elseif name and deployments[name] and deployments[name] ~= deployments[found] then
            return ""
        end
        at = last + 1
    end
    return ""
end

local function of_object(text, start)
    local found = ""
    begin(text, MODEL_STEPS)
    walk(text, start, function(field, first)
        if field == "model" then
            found = name_at(text, first) or ""
            -- Nothing that follows is looked at.
            return #text
        end
    end)
    return found == "" and left <= 0 and at_end(text) or found
end

-- multipart/form-data, as recordings are sent: its first line stands between the parts.
local function of_form(text)
    -- RFC 2046: at most 70 characters and the two before them
    local mark = string.match(string.sub(text, 1, 74), "^(%-%-[^\r\n]+)\r\n")
    local at = mark and #mark + 1
    for _ = 1, PARTS do
        local head_end = at and string.find(text, "\r\n\r\n", at, true)
        local last = head_end and string.find(text, "\r\n" .. mark, head_end + 4, true)
        if not last then
            return ""
        end
        if string.find(string.sub(text, at, head_end), ' name="model"', 1, true) then
            return string.sub(text, head_end + 4, math.min(last - 1, head_end + 3 + NAME))
        end
        at = last + 2 + #mark
    end
    return ""
end

-- "" where it names none
local function model(txn)
    local text = txn.f:req_body() or ""
    local start = string.match(string.sub(text, 1, NAME), "^%s*(){")
    return start and of_object(text, start) or of_form(text)
end

local function pool(txn)
    local deployment = deployments[txn:get_var("txn.model") or ""]
    -- For HAProxy nil is a value, no value is none.
    if deployment then
        return deployment
    end
end

-- OpenAI's list of models: those that a replica is up for. A process that a reload has replaced counts none.
local function list(txn)
    local ask, entries = txn.f, {}
    local stopping = ask:stopping()
    local all = stopping == true or stopping == 1
    for _, one in ipairs(MODELS) do
        if all or ask:nbsrv(one.deployment) > 0 then
            entries[#entries + 1] = '{"id":"' .. one.name .. '","object":"model","created":' .. CREATED
                .. ',"owned_by":"' .. one.deployment .. '"}'
        end
    end
    return '{"object":"list","data":[' .. table.concat(entries, ",") .. "]}"
end

core.register_fetches("apiary_model", model)
core.register_fetches("apiary_pool", pool)
core.register_fetches("apiary_models", list)
