-- wrk: every request has its own values for some headers, and none is sent twice.
--
--   wrk -s requests.lua URL -- FILE HEADER...
--
-- A line of the file has the values for one request, in the headers' order, with tabs between them.

local requests, sent = {}, 0

function init(arguments)
  local names = {}
  for index = 2, #arguments do
    names[#names + 1] = arguments[index]
  end
  for line in io.lines(arguments[1]) do
    local headers, index = {}, 0
    for name, value in pairs(wrk.headers) do
      headers[name] = value
    end
    for value in line:gmatch("[^\t]+") do
      index = index + 1
      headers[names[index]] = value
    end
    requests[#requests + 1] = wrk.format(nil, nil, headers)
  end
end

function request()
  sent = sent + 1
  -- What was used up would be another case.
  return requests[sent] or error("no requests are left: make more")
end
