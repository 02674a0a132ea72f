-- Homa for Wireshark and tshark: copy this file to the personal Lua plugins folder (Help, About, Folders), or pass -X lua_script:homa.lua.
--
-- It knows Homa as IP protocol 146, over UDP, and hijacked TCP (TCP segments that only Homa sends: SYN and RST together, and Homa's urgent
-- pointer). Field names are those of PROTOCOL.md with "homa." before them. Over UDP, packets are recognised by what they look like, and the
-- port in the preferences and 54321 (Linux Homa's UDP form) are always taken for Homa. A UDP datagram may hold several packets, a bundle: each packet
-- has a Homa tree of its own.

local IP_PROTOCOL = 146
local TCP_PROTOCOL = 6
local HIJACK_FLAGS = 0x06
local HIJACK_URGENT = 0xb97d
local OURS_URGENT = 0x484d
local UDP_PORT = 14600
-- Linux Homa's UDP form has this port at both ends.
local LINUX_UDP_PORT = 54321
-- Wireshark's number for UDP in pinfo.port_type.
local UDP_PORT_TYPE = 3
local IN_SEQUENCE = 0xffffffff
local ALL_SENT = 0xffffffff
local MAX_ACKS = 5

-- Each type of packet: its number, its name and the least length of such packets.
local PACKETS = {
  { 0x10, "DATA", 56 }, { 0x11, "GRANT", 33 }, { 0x12, "RESEND", 36 }, { 0x13, "RPC_UNKNOWN", 28 }, { 0x14, "BUSY", 28 },
  { 0x15, "CUTOFFS", 62 }, { 0x16, "FREEZE", 28 }, { 0x17, "NEED_ACK", 28 }, { 0x18, "ACK", 80 },
  { 0x19, "START_MSG", 32 },
}
local TYPES, LENGTHS, NUMBER = {}, {}, {}
for _, packet in ipairs(PACKETS) do
  local number, name, least = table.unpack(packet)
  TYPES[number], LENGTHS[number], NUMBER[name] = name, least, number
end
local COMMON_LEN = 28
local DATA_LEN = LENGTHS[NUMBER.DATA]

-- Where fields are: name, offset, length. All packets have those of COMMON; acknowledgements are in DATA and, several times, in ACK.
local COMMON = {
  { "source_port", 0, 2 }, { "dest_port", 2, 2 }, { "sequence", 4, 4 }, { "packet_length", 8, 2 },
  { "bundle_endpoints", 10, 1 }, { "type", 11, 1 }, { "doff", 12, 1 }, { "flags", 13, 1 }, { "window", 14, 2 },
  { "checksum", 16, 2 }, { "urgent", 18, 2 }, { "sender_id", 20, 8 },
}
local ACKED = { { "ack_client_id", 0, 8 }, { "ack_server_port", 8, 2 } }
local ACKED_LEN = 10
local LAYOUT = {
  DATA = {
    { "message_length", 28, 4 }, { "incoming", 32, 4 }, { "cutoff_version", 46, 2 }, { "retransmit", 48, 1 }, { "pad", 49, 3 },
    { "seg_offset", 52, 4 },
  },
  GRANT = { { "offset", 28, 4 }, { "priority", 32, 1 } },
  -- Linux Homa's build for net-next sends it without the priority that follows.
  RESEND = { { "offset", 28, 4 }, { "length", 32, 4 } },
  START_MSG = { { "message_length", 28, 4 } },
  CUTOFFS = { { "cutoff_version", 60, 2 } },
  ACK = { { "num_acks", 28, 2 } },
}

local homa = Proto("homa", "Homa")
homa.prefs.udp_port = Pref.uint("UDP port", UDP_PORT, "UDP port whose packets are always taken for Homa")

local f = {
  source_port = ProtoField.uint16("homa.source_port", "Source port"),
  dest_port = ProtoField.uint16("homa.dest_port", "Destination port"),
  port = ProtoField.uint16("homa.port", "Port"),
  sequence = ProtoField.uint32("homa.sequence", "Sequence"),
  packet_length = ProtoField.uint16("homa.packet_length", "Packet length in a bundle"),
  bundle_endpoints = ProtoField.uint8("homa.bundle_endpoints", "Endpoints of the sender's host that take bundles"),
  padding = ProtoField.bytes("homa.padding", "Padding behind the bundle"),
  type = ProtoField.uint8("homa.type", "Type", base.HEX, TYPES),
  doff = ProtoField.uint8("homa.doff", "TCP's data offset", base.HEX),
  flags = ProtoField.uint8("homa.flags", "TCP's flags", base.HEX),
  window = ProtoField.uint16("homa.window", "TCP's window", base.HEX),
  checksum = ProtoField.uint16("homa.checksum", "TCP's checksum", base.HEX),
  urgent = ProtoField.uint16("homa.urgent", "TCP's urgent pointer", base.HEX),
  incarnation = ProtoField.string("homa.incarnation", "Incarnation of the sender's host, if it is no kernel"),
  sender_id = ProtoField.uint64("homa.sender_id", "RPC id at the sender"),
  rpc_id = ProtoField.uint64("homa.rpc_id", "RPC id at the client"),
  from_client = ProtoField.bool("homa.from_client", "From the client"),
  message_length = ProtoField.uint32("homa.message_length", "Message length"),
  incoming = ProtoField.uint32("homa.incoming", "Bytes that come unasked or granted (exclusive end)"),
  ack_client_id = ProtoField.uint64("homa.ack.client_id", "Acknowledged RPC"),
  ack_server_port = ProtoField.uint16("homa.ack.server_port", "Acknowledged RPC's server port"),
  cutoff_version = ProtoField.uint16("homa.cutoff_version", "Version of cutoffs"),
  retransmit = ProtoField.uint8("homa.retransmit", "Retransmission"),
  pad = ProtoField.uint24("homa.pad", "Padding, or the limit of the response's unasked bytes", base.DEC),
  seg_offset = ProtoField.uint32("homa.seg.offset", "Segment's offset field", base.HEX),
  offset = ProtoField.uint32("homa.offset", "Offset"),
  payload = ProtoField.bytes("homa.payload", "Payload"),
  payload_length = ProtoField.uint32("homa.payload_length", "Payload length"),
  priority = ProtoField.uint8("homa.priority", "Priority"),
  length = ProtoField.uint32("homa.length", "Length"),
  cutoff = ProtoField.uint32("homa.cutoffs", "Cutoff"),
  unsched_limit = ProtoField.uint32("homa.unsched_limit", "Limit of unasked bytes"),
  num_acks = ProtoField.uint16("homa.num_acks", "Acknowledgements"),
  -- Over the whole RPC.
  request_in = ProtoField.framenum("homa.request_in", "Request begins in", base.NONE, frametype.REQUEST),
  response_in = ProtoField.framenum("homa.response_in", "Response ends in", base.NONE, frametype.RESPONSE),
  response_time = ProtoField.relative_time("homa.response_time", "From the request's first packet to the response's last"),
  service_time = ProtoField.relative_time("homa.service_time", "From the request's last packet to the response's first"),
  missing = ProtoField.uint32("homa.missing", "Bytes before this packet that have not passed yet"),
  same_as = ProtoField.framenum("homa.same_as", "The same bytes as in", base.NONE, frametype.RETRANS_PREV),
}
local fields = {}
for _, field in pairs(f) do
  fields[#fields + 1] = field
end
homa.fields = fields

local e = {
  short = ProtoExpert.new("homa.short", "Shorter than its type: Homa drops it", expert.group.MALFORMED, expert.severity.ERROR),
  packet_length = ProtoExpert.new("homa.bad_packet_length", "Does not fit the datagram: Homa drops the rest", expert.group.MALFORMED,
    expert.severity.ERROR),
  padding = ProtoExpert.new("homa.bad_padding", "Padding that is not zero", expert.group.PROTOCOL, expert.severity.WARN),
  unknown_type = ProtoExpert.new("homa.unknown_type", "No type of Homa's", expert.group.MALFORMED, expert.severity.ERROR),
  beyond = ProtoExpert.new("homa.beyond", "Bytes beyond the message's length", expert.group.PROTOCOL, expert.severity.WARN),
  retransmit = ProtoExpert.new("homa.retransmitted", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
  spurious = ProtoExpert.new("homa.passed_before", "These bytes have passed here before", expert.group.SEQUENCE, expert.severity.NOTE),
  gap = ProtoExpert.new("homa.gap", "Bytes before this packet have not passed yet", expert.group.SEQUENCE, expert.severity.NOTE),
  resend = ProtoExpert.new("homa.resend", "The receiver asks again", expert.group.SEQUENCE, expert.severity.NOTE),
  busy = ProtoExpert.new("homa.busy", "The sender is there and works on it", expert.group.SEQUENCE, expert.severity.CHAT),
  rpc_unknown = ProtoExpert.new("homa.rpc_unknown", "The RPC is not known there", expert.group.SEQUENCE, expert.severity.WARN),
  freeze = ProtoExpert.new("homa.freeze", "Asks for the time trace to be frozen", expert.group.DEBUG, expert.severity.CHAT),
}
local experts = {}
for _, info in pairs(e) do
  experts[#experts + 1] = info
end
homa.experts = experts

-- Adds these fields; returns their items in the tree and their values, by name.
local function add_fields(buf, tree, layout)
  local items, values = {}, {}
  for _, field in ipairs(layout) do
    local name, offset, length = table.unpack(field)
    local range = buf(offset, length)
    items[name] = tree:add(f[name], range)
    values[name] = length > 4 and range:uint64() or range:uint()
  end
  return items, values
end

-- What is known of RPCs, by "client address, id": filled in by the first pass in the order of time, and read in all others.
local rpcs = {}
-- What was found of a frame in the first pass, by "number of the frame, offset in it".
local frames = {}

function homa.init()
  rpcs = {}
  frames = {}
end

local function rpc_of(pinfo, id, from_client)
  local client = tostring(from_client and pinfo.src or pinfo.dst)
  local key = client .. " " .. tostring(id)
  local rpc = rpcs[key]
  if rpc == nil then
    rpc = { request = { passed = {}, count = 0 }, response = { passed = {}, count = 0 } }
    rpcs[key] = rpc
  end
  return rpc
end

-- Notes that bytes from `from` to `to` (exclusive) of a message have passed in a frame: how many before them are missing, and the frame
-- in which they have passed already, if they all have. Ranges are kept in order and merged, so that a message in order is one range.
local function pass(message, from, to, number)
  local ranges = message.passed
  local same, missing, at = nil, 0, 0
  for _, range in ipairs(ranges) do
    if range.from <= from and to <= range.to then
      same = range.frames[from] or range.frame
    end
    if at < from and range.from > at then
      missing = missing + math.min(range.from, from) - at
    end
    at = math.max(at, range.to)
  end
  if at < from then
    missing = missing + from - at
  end
  if same then
    return missing, same
  end
  local merged = { from = from, to = to, frame = number, frames = { [from] = number } }
  local rest = {}
  for _, range in ipairs(ranges) do
    if range.to < merged.from or range.from > merged.to then
      rest[#rest + 1] = range
    else
      merged.from = math.min(merged.from, range.from)
      merged.to = math.max(merged.to, range.to)
      for offset, frame in pairs(range.frames) do
        merged.frames[offset] = merged.frames[offset] or frame
      end
      merged.frame = math.min(merged.frame, range.frame)
    end
  end
  rest[#rest + 1] = merged
  table.sort(rest, function(a, b) return a.from < b.from end)
  message.passed = rest
  return missing, nil
end

local function note_data(pinfo, rpc, from_client, length, from, to)
  local message = from_client and rpc.request or rpc.response
  local found = {}
  local now = pinfo.rel_ts
  if message.first == nil then
    message.first, message.first_at = pinfo.number, now
  end
  found.missing, found.same = pass(message, from, math.min(to, length), pinfo.number)
  local range = message.passed[1]
  if message.last == nil and range and range.from == 0 and range.to >= length then
    message.last, message.last_at = pinfo.number, now
  end
  return found
end

local function range_text(from, to)
  return string.format("%d..%d", from, to)
end

local function data(buf, pinfo, tree, shown)
  local items, at = add_fields(buf, tree, LAYOUT.DATA)
  add_fields(buf(36, ACKED_LEN), tree, ACKED)
  local length, seg, again = at.message_length, at.seg_offset, at.retransmit ~= 0
  local offset = seg == IN_SEQUENCE and shown.sequence or seg
  local payload = buf:len() - DATA_LEN
  local to = offset + payload
  tree:add(f.offset, buf(seg == IN_SEQUENCE and 4 or 52, 4), offset):set_generated()
  tree:add(f.payload_length, buf(DATA_LEN), payload):set_generated()
  if payload > 0 then
    tree:add(f.payload, buf(DATA_LEN))
  end
  if to > length then
    tree:add_proto_expert_info(e.beyond)
  end
  if again then
    items.retransmit:add_proto_expert_info(e.retransmit)
  end
  if not pinfo.visited then
    frames[shown.key] = note_data(pinfo, shown.rpc, shown.from_client, length, offset, to)
  end
  local found = frames[shown.key]
  if found and found.same then
    tree:add(f.same_as, found.same):set_generated()
    tree:add_proto_expert_info(e.spurious)
  elseif found and found.missing > 0 then
    tree:add(f.missing, found.missing):set_generated()
    tree:add_proto_expert_info(e.gap, string.format("%d bytes before this packet have not passed yet", found.missing))
  end
  local what = shown.from_client and "request" or "response"
  return string.format("%s %s of %d%s", what, range_text(offset, to), length, again and " again" or "")
end

-- A packet without fields of its own, and what is to be noted of it.
local function only(expert_info)
  return function(_, _, tree)
    if expert_info then
      tree:add_proto_expert_info(expert_info)
    end
    return ""
  end
end

local bodies = {
  DATA = data,
  GRANT = function(buf, _, tree)
    local _, at = add_fields(buf, tree, LAYOUT.GRANT)
    return string.format("up to %d at priority %d", at.offset, at.priority)
  end,
  RESEND = function(buf, _, tree)
    local items, at = add_fields(buf, tree, LAYOUT.RESEND)
    if buf:len() > 36 then
      tree:add(f.priority, buf(36, 1))
    end
    tree:add_proto_expert_info(e.resend)
    if at.length == ALL_SENT then
      items.length:append_text(" (all that was sent)")
      return string.format("from %d all that was sent", at.offset)
    end
    return range_text(at.offset, at.offset + at.length)
  end,
  START_MSG = function(buf, _, tree, shown)
    local _, at = add_fields(buf, tree, LAYOUT.START_MSG)
    return string.format("%s of %d", shown.from_client and "request" or "response", at.message_length)
  end,
  RPC_UNKNOWN = only(e.rpc_unknown),
  BUSY = only(e.busy),
  CUTOFFS = function(buf, _, tree)
    local cutoffs = {}
    for i = 0, 7 do
      local range = buf(28 + 4 * i, 4)
      tree:add(f.cutoff, range):prepend_text(string.format("[%d] ", i))
      cutoffs[#cutoffs + 1] = tostring(range:uint())
    end
    local _, at = add_fields(buf, tree, LAYOUT.CUTOFFS)
    if buf:len() >= 66 then
      tree:add(f.unsched_limit, buf(62, 4))
    end
    return string.format("version %d: %s", at.cutoff_version, table.concat(cutoffs, " "))
  end,
  FREEZE = only(e.freeze),
  NEED_ACK = only(nil),
  ACK = function(buf, _, tree)
    local _, at = add_fields(buf, tree, LAYOUT.ACK)
    local count = math.min(at.num_acks, MAX_ACKS)
    for i = 0, count - 1 do
      add_fields(buf(30 + ACKED_LEN * i, ACKED_LEN), tree, ACKED)
    end
    return string.format("of this RPC and %d more", count)
  end,
}

local function common(buf, tree)
  local _, at = add_fields(buf, tree, COMMON)
  tree:add(f.port, buf(0, 2)):set_hidden()
  tree:add(f.port, buf(2, 2)):set_hidden()
  -- The kernel sends its urgent pointer; others have no use for it and tell their host's life in the fields before.
  if at.urgent ~= HIJACK_URGENT then
    tree:add(f.incarnation, buf(13, 5), tostring(buf(13, 5):bytes())):set_generated()
  end
  return at
end

local function elapsed(from, to)
  local ns = math.floor((to - from) * 1e9 + 0.5)
  return NSTime.new(math.floor(ns / 1e9), ns % 1e9)
end

local function whole_rpc(pinfo, tree, rpc)
  local request, response = rpc.request, rpc.response
  if request.first and request.first ~= pinfo.number then
    tree:add(f.request_in, request.first):set_generated()
  end
  if response.last and response.last ~= pinfo.number then
    tree:add(f.response_in, response.last):set_generated()
  end
  if response.last == pinfo.number and request.first then
    tree:add(f.response_time, elapsed(request.first_at, response.last_at)):set_generated()
  end
  if response.first == pinfo.number and request.last then
    tree:add(f.service_time, elapsed(request.last_at, response.first_at)):set_generated()
  end
end

-- Dissects one packet; returns its tree and its line for the column "Info".
local function packet(buf, pinfo, root)
  local tree = root:add(homa, buf())
  local at = common(buf, tree)
  local kind, sender_id = at.type, at.sender_id
  local name = TYPES[kind]
  local from_client = sender_id:band(1) == UInt64(0)
  local id = sender_id:band(UInt64(0xfffffffe, 0xffffffff))
  tree:add(f.rpc_id, buf(20, 8), id):set_generated()
  tree:add(f.from_client, buf(27, 1), from_client):set_generated()
  local ports = string.format("%d → %d", at.source_port, at.dest_port)
  if name == nil then
    tree:add_proto_expert_info(e.unknown_type)
    return tree, string.format("%s type 0x%02x", ports, kind)
  end
  local text = ""
  if buf:len() < LENGTHS[kind] then
    tree:add_proto_expert_info(e.short)
    text = "too short"
  else
    local rpc = rpc_of(pinfo, id, from_client)
    local key = pinfo.number .. " " .. buf:offset()
    local shown = { rpc = rpc, from_client = from_client, key = key, sequence = at.sequence }
    text = bodies[name](buf, pinfo, tree, shown)
    whole_rpc(pinfo, tree, rpc)
  end
  tree:append_text(string.format(", %s, RPC %s, %s", name, tostring(id), text))
  return tree, string.format("%s %s RPC %s %s", ports, name, tostring(id), text)
end

-- The bytes in the place of a packet's length, whoever sent them; 0 also where a whole header is not there.
local function stated_length(buf)
  return buf:len() >= COMMON_LEN and buf(8, 2):uint() or 0
end

-- The length in its bundle that the packet at the start of these bytes says it has; nil if it says none. Other
-- senders than ours may have anything in the field.
local function packet_length(buf)
  local length = stated_length(buf)
  return length > 0 and buf(18, 2):uint() == OURS_URGENT and length or nil
end

local function padding(buf, tree)
  local item = tree:add(f.padding, buf())
  if buf:bytes():tohex():find("[^0]") then
    item:add_proto_expert_info(e.padding)
  end
end

-- Dissects the packets of a bundle, of which this is the datagram; returns their lines for the column "Info".
local function bundle(buf, pinfo, root)
  local lines, at, tree = {}, 0, nil
  while at < buf:len() do
    local rest, on_wire = buf(at):tvb(), buf:reported_len() - at
    local length = stated_length(rest)
    if length == 0 then
      -- Cut by the capture, it may be a packet as well.
      if on_wire < COMMON_LEN or rest:len() >= COMMON_LEN then
        padding(rest, tree)
      end
      break
    end
    if packet_length(rest) == nil or length < COMMON_LEN or length > on_wire then
      tree = root:add(homa, rest())
      common(rest, tree)
      tree:add_proto_expert_info(e.packet_length)
      lines[#lines + 1] = string.format("bad packet_length %d", length)
      break
    end
    tree, lines[#lines + 1] = packet(buf(at, math.min(length, rest:len())):tvb(), pinfo, root)
    at = at + length
  end
  return lines
end

function homa.dissector(buf, pinfo, root)
  if buf:len() < COMMON_LEN then
    return 0
  end
  pinfo.cols.protocol = "Homa"
  if pinfo.port_type == UDP_PORT_TYPE and packet_length(buf) then
    pinfo.cols.info = table.concat(bundle(buf, pinfo, root), " | ")
  else
    local _, line = packet(buf, pinfo, root)
    pinfo.cols.info = line
  end
  return buf:len()
end

-- Whether these bytes look like Homa over UDP: a known type, whole, and a data offset as all of Homa's senders have it or none.
local function looks_like_homa(buf)
  if buf:len() < COMMON_LEN then
    return false
  end
  local kind, doff = buf(11, 1):uint(), buf(12, 1):uint()
  local length = packet_length(buf) or buf:len()
  local whole = LENGTHS[kind] and length >= LENGTHS[kind] and length <= buf:reported_len() and length <= 65535
  return whole and (doff == 0 or doff == 0x50 or doff == 0xd0 or doff == 0xe0)
    and (kind ~= NUMBER.DATA or buf(28, 4):uint() > 0)
end

homa:register_heuristic("udp", function(buf, pinfo, root)
  if not looks_like_homa(buf) then
    return false
  end
  homa.dissector(buf, pinfo, root)
  return true
end)

local ip = DissectorTable.get("ip.proto")
ip:add(IP_PROTOCOL, homa)

-- Hijacked TCP is told from TCP by what TCP never sends; the rest goes to the dissector that was there before.
local tcp = ip:get_dissector(TCP_PROTOCOL)
local hijack = Proto("homa_tcp", "Homa in TCP's clothes")
function hijack.dissector(buf, pinfo, root)
  local is_homa = buf:len() >= COMMON_LEN and buf(13, 1):uint() == HIJACK_FLAGS and buf(18, 2):uint() == HIJACK_URGENT
  if is_homa then
    return homa.dissector(buf, pinfo, root)
  end
  return tcp:call(buf, pinfo, root)
end
ip:add(TCP_PROTOCOL, hijack)

local udp = DissectorTable.get("udp.port")
local port = UDP_PORT
udp:add(port, homa)
udp:add(LINUX_UDP_PORT, homa)
function homa.prefs_changed()
  if port ~= homa.prefs.udp_port then
    if port ~= LINUX_UDP_PORT then
      udp:remove(port, homa)
    end
    port = homa.prefs.udp_port
    udp:add(port, homa)
  end
end
