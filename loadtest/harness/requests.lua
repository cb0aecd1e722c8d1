-- wrk: every request has its own values for some headers, or its own path.
--
--   wrk -s requests.lua URL -- FILE once|again HEADER...
--
-- A line of the file has the values of one request, in the headers' order, separated by tabs; `:path` stands for the
-- path. With `once` no line is sent twice; `again` starts over after the last one.

local requests, sent, again = {}, 0, false

function init(arguments)
  local names = {}
  again = arguments[2] == "again"
  for index = 3, #arguments do
    names[#names + 1] = arguments[index]
  end
  for line in io.lines(arguments[1]) do
    local path, headers, index = nil, {}, 0
    for name, value in pairs(wrk.headers) do
      headers[name] = value
    end
    for value in line:gmatch("[^\t]+") do
      index = index + 1
      if names[index] == ":path" then
        path = value
      else
        headers[names[index]] = value
      end
    end
    requests[#requests + 1] = wrk.format(nil, path, headers)
  end
end

function request()
  sent = sent + 1
  if again and sent > #requests then
    sent = 1
  end
  -- A repeated request would be another case.
  return requests[sent] or error("no requests are left: make more")
end
