#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>

#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/sha256.h"
#include "belfry/framework/group/tcp_greeting_impl.h"

namespace belfry::detail {
namespace {

constexpr std::string_view kLetterMagic = "Belfry5\n";
constexpr std::size_t kLetterHead = kLetterMagic.size() + sizeof(std::uint32_t);
constexpr std::size_t kNonceBytes = 16, kSealBytes = sizeof(Sha256), kMeetingDigits = 32;
constexpr std::size_t kMostHostName = 255, kMostAddress = 64;
constexpr int kMostGreetingPort = 65535;

[[noreturn]] void refuse_words(const char* what) {
  throw CommError(cat("a greeting has no ", what, " that can be"));
}

int number_of(std::string_view text, int least, int most, const char* what) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    refuse_words(what);
  return value;
}

std::string host_of(std::string_view text) {
  if (!is_host_name(text)) refuse_words("host");
  return std::string(text);
}

constexpr int kMostGreetingInt = 0x7fffffff;

int round_of(std::string_view text) { return number_of(text, 0, kMostGreetingInt, "round"); }

int rank_of(std::string_view text) {
  return number_of(text, -kMostGreetingInt, kMostGreetingInt, "rank");
}

std::string meeting_of(std::string_view text) {
  const bool is_name =
      text.size() == kMeetingDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
  if (text != kNoMeeting && !is_name) refuse_words("meeting");
  return std::string(text);
}

// "10.0.0.7", "fe80::1%eth0": looked up only as numeric addresses.
bool is_address(std::string_view text) {
  const auto may_be = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view(".:%_-").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kMostAddress && std::ranges::all_of(text, may_be);
}

Place place_of(std::string_view line, bool first) {
  const std::vector<std::string_view> fields = split(line, ' ');
  if (fields.size() != 3 || !(first ? fields[0] == "-" : is_address(fields[0])))
    refuse_words("address");
  return {std::string(fields[0]), number_of(fields[1], first ? 0 : 1, kMostGreetingPort, "port"),
          host_of(fields[2])};
}

}  // namespace

std::string letter(std::string_view body) {
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string text(kLetterMagic);
  text.append(reinterpret_cast<const char*>(&size), sizeof(size));
  return text.append(body);
}

LetterReader::LetterReader(std::size_t most) : most_(most), bytes_(kLetterHead, '\0') {}

std::span<std::byte> LetterReader::space() {
  return std::as_writable_bytes(std::span(bytes_)).subspan(have_);
}

void LetterReader::add(std::size_t count) {
  have_ += count;
  const std::size_t known = std::min(have_, kLetterMagic.size());
  require<Refused>(bytes_.compare(0, known, kLetterMagic, 0, known) == 0,
                   "it is no process of Belfry, or of another version");
  if (has_size_ || have_ < kLetterHead) return;
  std::uint32_t size = 0;
  std::memcpy(&size, bytes_.data() + kLetterMagic.size(), sizeof(size));
  require<Refused>(size <= most_, "it says more than a process of Belfry does");
  bytes_.resize(kLetterHead + size);
  has_size_ = true;
}

std::string_view LetterReader::body() const { return std::string_view(bytes_).substr(kLetterHead); }

std::size_t most_in_table(int size) {
  constexpr std::size_t kMostLine = kMostAddress + kMostHostName + 8;
  return kMostAnswer + kMostLine * static_cast<std::size_t>(size);
}

std::string random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  const bool given = ::getentropy(nonce.data(), nonce.size()) == 0;
  require<CommError>(given, "the system gives no random numbers: ", std::strerror(errno));
  return nonce;
}

std::string random_meeting() {
  std::string name;
  for (const char byte : random_nonce()) name += hex(static_cast<unsigned char>(byte), 2);
  return name;
}

MeetingKey::MeetingKey(const std::string& token, int start)
    : secret(bytes_of(hmac_sha256(token, cat("Belfry ", start)))), round(start) {}

Seal::Seal(const MeetingKey& key, std::string_view listener_nonce, std::string_view caller_nonce)
    : secret_(key.secret), nonces_(cat(listener_nonce, caller_nonce)) {}

std::string Seal::close(std::string_view label, std::string_view text) const {
  return cat(bytes_of(hmac_sha256(secret_, cat(nonces_, label, '\n', text))), text);
}

std::optional<std::string> Seal::open(std::string_view label, std::string_view sealed) const {
  if (sealed.size() < kSealBytes) return std::nullopt;
  const std::string_view text = sealed.substr(kSealBytes);
  if (!equal_in_constant_time(close(label, text), sealed)) return std::nullopt;
  return std::string(text);
}

std::string Banner::body() const { return cat(nonce, round); }

Banner Banner::read(std::string_view body) {
  if (body.size() < kNonceBytes) refuse_words("nonce");
  return {std::string(body.substr(0, kNonceBytes)), round_of(body.substr(kNonceBytes))};
}

std::string Call::body() const { return cat(nonce, round, '\n', sealed); }

Call Call::read(std::string_view body) {
  const std::size_t end = body.find('\n', std::min(body.size(), kNonceBytes));
  if (end == std::string_view::npos) refuse_words("nonce");
  return {std::string(body.substr(0, kNonceBytes)),
          round_of(body.substr(kNonceBytes, end - kNonceBytes)), std::string(body.substr(end + 1))};
}

std::string Card::str() const {
  return cat(rank, ' ', size, ' ', port, ' ', host, ' ', callee, ' ', meeting);
}

Card Card::read(std::string_view text) {
  const std::vector<std::string_view> fields = split(text, ' ');
  if (fields.size() != 6) refuse_words("card");
  return {rank_of(fields[0]),
          number_of(fields[1], 1, kMostGreetingInt, "number of processes"),
          number_of(fields[2], 1, kMostGreetingPort, "port"),
          host_of(fields[3]),
          rank_of(fields[4]),
          meeting_of(fields[5])};
}

std::string Answer::str() const { return cat(from.rank, ' ', from.meeting, ' ', text); }

Answer Answer::read(std::string_view text) {
  const std::size_t first = text.find(' '), second = text.find(' ', first + 1);
  if (first == text.npos || second == text.npos) refuse_words("answer");
  return {{rank_of(text.substr(0, first)), meeting_of(text.substr(first + 1, second - first - 1))},
          std::string(text.substr(second + 1))};
}

std::string table_of(std::span<const Place> places) {
  std::string text;
  for (const Place& place : places)
    text += cat(place.address, ' ', place.port, ' ', place.host, '\n');
  return text;
}

std::vector<Place> read_table(std::string_view text, int size) {
  std::vector<std::string_view> lines = split(text, '\n');
  // Each line ends with a break, so the last part is empty.
  if (std::ssize(lines) != size + 1 || !lines.back().empty()) refuse_words("table");
  lines.pop_back();
  std::vector<Place> places;
  for (const std::string_view line : lines) places.push_back(place_of(line, places.empty()));
  return places;
}

bool is_host_name(std::string_view text) {
  const auto seen = [](char c) { return c > ' ' && c < '\x7f'; };
  return !text.empty() && text.size() <= kMostHostName && std::ranges::all_of(text, seen);
}

}  // namespace belfry::detail
