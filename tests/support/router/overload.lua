-- Copyright (c) 2026, The Apiary authors
-- GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
-- SPDX-License-Identifier: GPL-3.0-or-later

-- Chats of ten turns before engines that compute one prompt after the other, in simulated time:
-- what benchmarks/routers.py does in real time, for chooser.lua. RATE, SEED, SECONDS and LIMIT are set
-- before. Prints what was good a second, the p90 of first tokens, and the chats lost of those that ran.
math.randomseed(SEED)
local PREFILL, KV, SLO, DECODE, THINK, TURNS = 3000, 200000, 2, 1.5, 6, 10
local CARD, USER, ANSWER, CARDS = 1500, 300, 150, 200
local WARM = 0.3 * SECONDS

-- Events by time: a binary heap.
local heap, order = {}, 0
local function before(a, b)
    return a.time < b.time or (a.time == b.time and a.order < b.order)
end
local function after(seconds, act)
    order = order + 1
    local at = #heap + 1
    heap[at] = { time = now + seconds, order = order, act = act }
    while at > 1 and before(heap[at], heap[at // 2]) do
        heap[at], heap[at // 2] = heap[at // 2], heap[at]
        at = at // 2
    end
end
local function pop()
    local top, last, at = heap[1], table.remove(heap), 1
    if #heap == 0 then
        return top
    end
    heap[1] = last
    while true do
        local least = at
        for child = 2 * at, 2 * at + 1 do
            if heap[child] and before(heap[child], heap[least]) then
                least = child
            end
        end
        if least == at then
            return top
        end
        heap[at], heap[least] = heap[least], heap[at]
        at = least
    end
end
local function exponential(mean)
    return -mean * math.log(1 - math.random())
end

local engines = {}
for _, name in ipairs(names) do
    engines[name] = { name = name, cache = {}, used = 0, clock = 0, prompts = {}, waiting = {} }
end
local function keep(engine, key, tokens)
    local known = engine.cache[key]
    engine.clock = engine.clock + 1
    engine.used = engine.used + tokens - (known and known.tokens or 0)
    engine.cache[key] = { tokens = tokens, clock = engine.clock }
    while engine.used > KV do
        local oldest
        for name, one in pairs(engine.cache) do
            if oldest == nil or one.clock < engine.cache[oldest].clock then
                oldest = name
            end
        end
        engine.used = engine.used - engine.cache[oldest].tokens
        engine.cache[oldest] = nil
    end
end
local function compute(engine)
    local request = not engine.busy and table.remove(engine.prompts, 1)
    if not request then
        return
    end
    engine.busy = true
    local chat = request.chat
    local prompt = CARD + chat.turn * (USER + ANSWER) - ANSWER
    local own, cached = engine.cache[chat.id], 0
    if engine.cache[chat.card] then
        cached = CARD + (own and own.tokens or 0)
    end
    after(math.max(prompt - cached, 16) / PREFILL, function()
        engine.busy = false
        keep(engine, chat.card, CARD)
        keep(engine, chat.id, prompt + ANSWER - CARD)
        request.first()
        compute(engine)
    end)
end
local function give(engine, request)
    conn[engine.name] = conn[engine.name] + 1
    table.insert(engine.prompts, request)
    compute(engine)
end

local running, firsts, good, lost, admitted = {}, {}, 0, 0, 0
local function turn(chat, attempt)
    local began = now
    local name, first = choose(chat.key, running[chat.id])
    if name == nil or name == "-" then
        if attempt < 3 then
            after(2 + 2 * math.random(), function() turn(chat, attempt + 1) end)
        elseif now - 1000 > WARM and chat.turn > 1 then
            lost = lost + 1
        end
        return
    end
    local engine, request = engines[name], { chat = chat }
    function request.first()
        running[chat.id] = true
        first()
        if now - 1000 > WARM then
            firsts[#firsts + 1] = now - began
            good = good + (now - began <= SLO and 1 or 0)
            admitted = admitted + (chat.turn == 1 and 1 or 0)
        end
        after(DECODE, function()
            conn[name] = conn[name] - 1
            if queue[name] > 0 then
                queue[name] = queue[name] - 1
                give(engine, table.remove(engine.waiting, 1))
            end
            if chat.turn < TURNS then
                chat.turn = chat.turn + 1
                after(exponential(THINK), function() turn(chat, 1) end)
            end
        end)
    end
    if conn[name] < LIMIT then
        give(engine, request)
    else
        queue[name] = queue[name] + 1
        table.insert(engine.waiting, request)
    end
end

local weights, count = { [0] = 0 }, 0
for rank = 1, CARDS do
    weights[rank] = weights[rank - 1] + 1 / rank
end
local function arrive()
    count = count + 1
    local draw, card = math.random() * weights[CARDS], 1
    while weights[card] < draw do
        card = card + 1
    end
    turn({ id = "chat-" .. count, key = tostring(math.random(1 << 60)), card = card, turn = 1 }, 1)
    after(exponential(TURNS / RATE), arrive)
end
after(0, arrive)
while heap[1].time < 1000 + SECONDS do
    local event = pop()
    now = event.time
    event.act()
end
table.sort(firsts)
print(good / (SECONDS - WARM), firsts[math.ceil(#firsts * 0.9)], lost / math.max(1, admitted))
