-- Copyright (c) 2026, The Apiary authors
-- GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
-- SPDX-License-Identifier: GPL-3.0-or-later

-- What HAProxy gives the router's Lua, in times that a script sets; then the script on standard input.
--     lua5.3 chooser.lua replica.lua REPLICAS LIMIT < SCRIPT
now, names, conn, queue, up = 1000.0, {}, {}, {}, 1
local count, limit = tonumber(arg[2]), tonumber(arg[3])
local fetch, action
local servers = {}
process = {}
for number = 0, count - 1 do
    local name = ("host-%02d-0"):format(number)
    names[#names + 1], conn[name], queue[name] = name, 0, 0
    servers[name] = {
        get_maxconn = function() return limit end,
        is_draining = function() return 0 end,
    }
end
core = {
    backends = { demo = { servers = servers } },
    now = function() return { sec = math.floor(now), usec = math.floor(now % 1 * 1e6) } end,
    register_fetches = function(name, called)
        if name == "apiary_replica" then
            fetch = called
        end
    end,
    register_service = function() end,
    thread = 1,
    register_action = function(_, _, called) action = called end,
}
dofile(arg[1])

local ask = {
    srv_conn = function(_, name) return conn[name] end,
    srv_queue = function(_, name) return queue[name] end,
    srv_weight = function() return 100 end,
    srv_iweight = function() return 100 end,
    srv_is_up = function() return up end,
    nbsrv = function() return count end,
    be_conn = function()
        local sum = 0
        for _, one in pairs(conn) do
            sum = sum + one
        end
        return sum
    end,
}

-- The replica that a request gets, "-" where it is refused, and what tells of its first token.
function choose(session, running, place, path)
    local kept
    local own = { ["txn.running"] = running or nil, ["txn.place"] = place }
    own["txn.path"] = path or "/v1/chat/completions"
    local chosen
    local heads = { req_fhdr = function() return session end, srv_name = function() return chosen end }
    local txn = {
        f = setmetatable(heads, { __index = ask }),
        get_var = function(_, name)
            return own[name] or process[name]
        end,
        set_var = function(_, name, value) process[name] = value end,
        set_priv = function(_, value) kept = value end,
        get_priv = function() return kept end,
    }
    chosen = fetch(txn, "demo")
    return chosen, function() if action then action(txn) end end
end

load(io.read("a"))()
