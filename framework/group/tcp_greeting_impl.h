// What two processes say when one connects to the other. Anybody may connect to a port, so nothing
// here trusts what it reads, or allocates more than a bound before it knows who is there.
//
//   listener: Banner, with a random number
//   caller:   Call, with its own random number and its Card, sealed
//   listener: Answer, sealed; later rank 0 says where all processes are, sealed
//
// A seal is an HMAC over both numbers and the text, keyed by the token. So each side knows that the
// other one has the token, nobody overhears the token, and nobody can replay what was said. Card
// and Answer say which rank of which meeting speaks, so a process left over from an earlier run
// with the same token is turned away, too.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/error.h"

namespace belfry::detail {

// The other side is not who was meant. Another try would end the same way.
class Refused : public CommError {
 public:
  using CommError::CommError;
};

// A letter is a magic word, the number of bytes that follow, and these bytes.
std::string letter(std::string_view body);

// Takes one letter in pieces, as they arrive, and nothing after it.
class LetterReader {
 public:
  // `most`: the limit of the body, in bytes.
  explicit LetterReader(std::size_t most);
  // Where the next bytes go; empty once the letter is complete.
  std::span<std::byte> space();
  // That many bytes have arrived. Throws Refused as soon as they cannot begin a letter.
  void add(std::size_t count);
  bool whole() const { return has_size_ && have_ == bytes_.size(); }
  bool empty() const { return have_ == 0; }
  std::string_view body() const;

 private:
  std::size_t most_;
  std::string bytes_;
  std::size_t have_ = 0;
  bool has_size_ = false;
};

// The text of an answer; after kEndWord it says why. kCalled: the listener is calling the caller
// itself, and its call counts.
constexpr std::string_view kWelcome = "welcome", kCalled = "called", kEndWord = "end ";

// The meeting of a process that has not met the others.
constexpr std::string_view kNoMeeting = "-";
// Why two processes of two meetings turn each other away.
constexpr std::string_view kOtherMeeting =
    "it is of another run with the same token (BELFRY_TOKEN); end what is left of that run";
// The name of a meeting, which rank 0 chooses at random.
std::string random_meeting();

// The most bytes of the bodies of letters.
constexpr std::size_t kMostBanner = 64, kMostCall = 512, kMostAnswer = 8192;
std::size_t most_in_table(int size);

// 16 random bytes.
std::string random_nonce();

// What all processes of one start of a run know.
struct MeetingKey {
  MeetingKey(const std::string& token, int round);

  std::string secret;
  int round = 0;  // of the starts with this token
};

// Seals what is said on one connection.
class Seal {
 public:
  Seal(const MeetingKey& key, std::string_view listener_nonce, std::string_view caller_nonce);
  // The seal, then the text. `label` says what kind of text it is.
  std::string close(std::string_view label, std::string_view text) const;
  // The text; none if it was sealed with another token, or under another label.
  std::optional<std::string> open(std::string_view label, std::string_view sealed) const;

 private:
  std::string secret_, nonces_;
};

// These throw CommError if they read something that no process of Belfry writes.
struct Banner {
  std::string nonce;
  int round = 0;

  std::string body() const;
  static Banner read(std::string_view body);
};

struct Call {
  std::string nonce;
  int round = 0;
  std::string sealed;  // a Card

  std::string body() const;
  static Call read(std::string_view body);
};

struct Card {
  int rank = -1;  // may be any number
  int size = 0, port = 0;
  std::string host;
  int callee = 0;  // the rank that it wants to reach; may be any number
  std::string meeting{kNoMeeting};

  std::string str() const;
  static Card read(std::string_view text);
};

// A process of a run, by which a listener is known.
struct Member {
  int rank = 0;
  std::string meeting;
};

struct Answer {
  Member from;
  std::string text;

  std::string str() const;
  static Answer read(std::string_view text);
};

// Where a process listens, as rank 0 sees it.
struct Place {
  std::string address;  // in numbers; "-" for rank 0
  int port = 0;
  std::string host;
};

std::string table_of(std::span<const Place> places);
std::vector<Place> read_table(std::string_view text, int size);

// Whether a host may have this name: 1 to 255 visible characters.
bool is_host_name(std::string_view text);

}  // namespace belfry::detail
