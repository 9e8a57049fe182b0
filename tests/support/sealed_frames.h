// Messages of a process that knows their format, and sends in it what it likes.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>

#include "belfry/framework/base/check_hash.h"
#include "belfry/framework/group/tags.h"
#include "belfry/framework/group/tcp_peer_impl.h"

namespace belfry::test {

// A head with the right check hash of its own.
inline detail::FrameHead sealed(detail::FrameHead head) {
  head.check = head.own_check();
  return head;
}

// The head of a message of so many bytes, whose first frame has these.
inline detail::FrameHead head_of(int tag, std::uint64_t size, std::string_view frame) {
  return sealed({.tag = static_cast<std::uint32_t>(tag), .size = size, .word = check_hash(frame)});
}

// Gives all frames in these bytes the check hashes that fit.
template <class Byte>
void seal_frames(std::span<Byte> bytes) {
  std::array<std::uint64_t, 2> had{};  // of the messages that are under way, as TcpPeer has two
  while (bytes.size() >= sizeof(detail::FrameHead)) {
    detail::FrameHead head;
    std::memcpy(&head, bytes.data(), sizeof(head));
    std::span<Byte> body = bytes.subspan(sizeof(head));
    std::uint64_t size = 0;
    if (head.kind == detail::FrameHead::kBytes) {
      std::uint64_t& have = had[overtakes(static_cast<int>(head.tag))];
      if (have >= head.size) have = 0;
      size = std::min<std::uint64_t>(head.size - have, detail::TcpPeer::kFrameBytes);
      have += size;
      body = body.first(std::min(body.size(), size));
      head.word = check_hash(std::as_bytes(body));
    } else {
      body = {};
    }
    head = sealed(head);
    std::memcpy(bytes.data(), &head, sizeof(head));
    bytes = bytes.subspan(sizeof(head) + body.size());
  }
}

}  // namespace belfry::test
