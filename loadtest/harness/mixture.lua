-- wrk: allowed requests, ones without the tool, invalid ones, and open paths, in turn.
--
--   wrk -s mixture.lua URL -- DELEGATION DELEGATION_OF_ANOTHER_TOOL

local requests, sent = {}, 0

function init(arguments)
  local allowed = { delegation = arguments[1] }
  local others = { { delegation = arguments[2] }, { delegation = "garbage" }, {} }
  for _, headers in ipairs(others) do
    for _ = 1, 3 do
      requests[#requests + 1] = wrk.format("GET", nil, allowed)
    end
    requests[#requests + 1] = wrk.format("GET", nil, headers)
  end
  requests[#requests + 1] = wrk.format("GET", "/healthz", {})
end

function request()
  sent = sent + 1
  return requests[sent % #requests + 1]
end
