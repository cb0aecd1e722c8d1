-- wrk: every request has this method and the same body.
--
--   wrk -s body.lua URL -- METHOD FILE

local text

function init(arguments)
  local file = assert(io.open(arguments[2], "rb"))
  text = wrk.format(arguments[1], nil, nil, file:read("*a"))
  file:close()
end

function request()
  return text
end
