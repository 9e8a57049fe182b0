#include "belfry/trainers/data/tar_members.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/bad_records.h"

namespace belfry {
namespace {

constexpr std::uint64_t kTarBlock = 512;

constexpr std::uint64_t filled_up(std::uint64_t length) {
  return (length + kTarBlock - 1) / kTarBlock * kTarBlock;
}

// Octal digits, with spaces or zero bytes around them; 0 without any.
std::optional<std::uint64_t> octal_number(std::string_view field) {
  const std::size_t begin = field.find_first_not_of(' ');
  if (begin == field.npos) return 0;
  field.remove_prefix(begin);
  field = field.substr(0, field.find_first_of(std::string_view(" \0", 2)));
  if (field.empty()) return 0;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 8);
  if (error != std::errc() || end != field.data() + field.size()) return {};
  return value;
}

// A field up to its first zero byte.
std::string up_to_zero(std::string_view field) {
  return std::string(field.substr(0, field.find('\0')));
}

}  // namespace

// A header.
struct TarMembers::Block {
  char bytes[kTarBlock];

  std::string_view field(std::size_t begin, std::size_t size) const {
    return {bytes + begin, size};
  }
  bool is_zero() const {
    return std::all_of(bytes, bytes + kTarBlock, [](char c) { return c == '\0'; });
  }
  // Its own sum counts as spaces. Old programs added up signed bytes.
  bool has_right_sum() const {
    constexpr std::size_t kSum = 148, kSumSize = 8;
    std::uint64_t plain = 0;
    std::int64_t with_signs = 0;
    for (std::size_t i = 0; i < kTarBlock; ++i) {
      const char c = i >= kSum && i < kSum + kSumSize ? ' ' : bytes[i];
      plain += static_cast<unsigned char>(c);
      with_signs += static_cast<signed char>(c);
    }
    const auto written = octal_number(field(kSum, kSumSize));
    return written == plain || (written && static_cast<std::int64_t>(*written) == with_signs);
  }
  // In octal_number digits or, by GNU tar, as a big-endian number after a byte 0x80.
  std::optional<std::uint64_t> length() const {
    const std::string_view written = field(124, 12);
    if (written[0] != '\x80') return octal_number(written);
    std::uint64_t value = 0;
    for (const char c : written.substr(1)) {
      if (value >> 56 != 0) return {};
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  char kind() const { return bytes[156]; }
  std::string name() const {
    const std::string last = up_to_zero(field(0, 100));
    const std::string prefix =
        field(257, 6) == std::string_view("ustar", 6) ? up_to_zero(field(345, 155)) : std::string();
    return prefix.empty() ? last : cat(prefix, "/", last);
  }
};

template <class... Parts>
void TarMembers::fail(const Parts&... parts) const {
  throw lost_rest(name_, ": tar header at byte ", header_, ": ", parts...);
}

void TarMembers::skip(std::uint64_t count, const char* what) {
  if (!bytes_.skip(count)) fail("the file ends before its ", what);
  position_ += count;
}

std::string TarMembers::description(std::uint64_t length) {
  if (length > kMostTarHeader)
    fail("it describes the next one in ", length, " bytes, where at most ", kMostTarHeader,
         " are taken");
  std::string text(length, '\0');
  if (bytes_.read(std::as_writable_bytes(std::span(text))) < length)
    fail("the file ends before its ", length, " bytes");
  position_ += length;
  skip(filled_up(length) - length, "last block");
  return text;
}

// Records "LENGTH KEY=VALUE\n", whose length counts all of it.
void TarMembers::read_pax(const std::string& records, TarMember& member, bool& has_length) const {
  for (std::string_view rest = records; !rest.empty();) {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    if (error != std::errc() || length <= digits + 1 || length > rest.size() ||
        rest[digits] != ' ' || rest[length - 1] != '\n')
      fail("its pax records are damaged");
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    rest.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == record.npos) fail("its pax records are damaged");
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") member.name = value;
    if (key.starts_with("GNU.sparse.")) fail("sparse members are not read; pack the file anew");
    if (key != "size") continue;
    const auto [last, wrong] =
        std::from_chars(value.data(), value.data() + value.size(), member.length);
    if (wrong != std::errc() || last != value.data() + value.size())
      fail("its pax size '", shown(value), "' is no number");
    has_length = true;
  }
}

// Tar files that were joined end where the first one ends, so the members of the others are
// missing.
void TarMembers::expect_zeros() {
  Block block;
  while (const std::size_t got = bytes_.read(std::as_writable_bytes(std::span(block.bytes)))) {
    const auto read = std::span(block.bytes).first(got);
    if (std::ranges::any_of(read, [](char c) { return c != '\0'; }))
      fail("more follows the zeros that end a tar file; if several were joined, pack them anew");
  }
}

std::optional<TarMember> TarMembers::next() {
  skip(std::exchange(content_, 0), "content");
  own_ = 0;
  TarMember member{.offset = position_};
  bool has_length = false, is_described = false;
  for (;;) {
    Block block;
    header_ = position_;
    const std::size_t got = bytes_.read(std::as_writable_bytes(std::span(block.bytes)));
    if (got == 0 && !is_described)
      fail(
          "the file ends without the two blocks of zeros that end a tar file, so members may be "
          "missing (if none is, append 1,024 zero bytes to the unpacked file)");
    if (got < kTarBlock) fail("expected ", kTarBlock, " bytes, found ", got);
    position_ += kTarBlock;
    if (block.is_zero() && !is_described) {
      expect_zeros();
      return {};
    }
    if (!block.has_right_sum()) fail("its sum is wrong, so it is no header");
    const auto length = block.length();
    if (!length || *length > std::numeric_limits<std::uint64_t>::max() / 2 - position_)
      fail("its length is no number");
    switch (block.kind()) {
      case 'x': read_pax(description(*length), member, has_length); break;
      case 'L': member.name = up_to_zero(description(*length)); break;
      case 'K':
      case 'g': description(*length); break;
      case 'S':
      case 'M': fail("sparse members, and members in several files, are not read; pack it anew");
      default: {
        if (!has_length) member.length = *length;
        if (member.length > std::numeric_limits<std::uint64_t>::max() / 2 - position_)
          fail("its length is no number");
        if (member.name.empty()) member.name = block.name();
        const char kind = block.kind();
        member.is_file = kind == '0' || kind == '\0' || kind == '7';
        if (kind >= '1' && kind <= '6') member.length = 0;
        member.head = position_ - member.offset;
        own_ = member.length;
        content_ = filled_up(member.length);
        return member;
      }
    }
    is_described = true;
  }
}

std::string TarMembers::content(std::size_t most) {
  std::string text(std::min<std::uint64_t>(own_, most), '\0');
  const std::size_t got = bytes_.read(std::as_writable_bytes(std::span(text)));
  if (got < text.size()) fail("the file ends before its content");
  position_ += got;
  content_ -= got;
  own_ -= got;
  return text;
}

}  // namespace belfry
