// The members of tar files: those of POSIX (ustar and pax) and of GNU tar.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace belfry {

// Bytes that are read from front to back.
class ForwardBytes {
 public:
  virtual ~ForwardBytes() = default;
  // Fewer than `out` has room for only at the end.
  virtual std::size_t read(std::span<std::byte> out) = 0;
  // False if the end comes first.
  virtual bool skip(std::uint64_t count) = 0;
};

struct TarMember {
  std::string name = {};
  std::uint64_t offset = 0;  // of its first header
  std::uint64_t head = 0;    // bytes of its headers; its content follows
  std::uint64_t length = 0;  // of its content
  bool is_file = false;      // no folder, link or device
};

// Longer names and pax headers are refused before memory is taken for them.
inline constexpr std::uint64_t kMostTarHeader = std::uint64_t{1} << 20;

class TarMembers {
 public:
  // Borrows `bytes`. `name` is for messages.
  TarMembers(ForwardBytes& bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  // The next member; none at the end, which is a block of zeros. Throws IoError, naming file and
  // byte, for a header that is none, a file that ends before its content or without such a block or
  // has more than zeros after it, and members whose content is not in one piece.
  std::optional<TarMember> next();
  // The first bytes of the content of the member that next() gave last, at most `most`; once.
  std::string content(std::size_t most);

 private:
  struct Block;
  // The content of a header that describes the next one.
  std::string description(std::uint64_t length);
  void read_pax(const std::string& records, TarMember& member, bool& has_length) const;
  void skip(std::uint64_t count, const char* what);
  void expect_zeros();
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const;

  ForwardBytes& bytes_;
  const std::string name_;
  std::uint64_t position_ = 0;  // bytes read or skipped
  std::uint64_t header_ = 0;    // of the header read last
  std::uint64_t content_ = 0;  // bytes of the last member that are left, with those that fill it up
  std::uint64_t own_ = 0;      // those of them that are its own
};

}  // namespace belfry
