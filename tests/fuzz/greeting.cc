// Input: what to read, one byte, and the words of whoever has called or was called.
#include "belfry/framework/group/tcp_greeting_impl.h"
#include "belfry/tests/fuzz/target.h"

namespace {

using namespace belfry;
using namespace belfry::detail;

// Takes the words in pieces, as they may come over a network.
std::string body_of(std::string_view words, std::size_t most) {
  LetterReader reader(most);
  for (std::size_t piece = 1; !reader.whole() && !words.empty(); piece = piece % 7 + 1) {
    const std::span<std::byte> space = reader.space();
    const std::size_t count = std::min({piece, words.size(), space.size()});
    std::copy_n(reinterpret_cast<const std::byte*>(words.data()), count, space.begin());
    reader.add(count);
    words.remove_prefix(count);
  }
  if (!reader.whole()) throw CommError("a part of a letter");
  test::check(reader.body().size() <= most, "a letter is longer than it may be");
  return std::string(reader.body());
}

// What was read says the same when it is written, and read again.
template <class T>
void check_again(const T& read, std::string (T::*text)() const) {
  const std::string once = (read.*text)();
  test::check((T::read(once).*text)() == once, "written words are read as others");
}

void read_words(int kind, std::string_view words) {
  constexpr int kProcesses = 3;
  switch (kind) {
    case 0: return check_again(Banner::read(body_of(words, kMostBanner)), &Banner::body);
    case 1: {
      const Call call = Call::read(body_of(words, kMostCall));
      check_again(call, &Call::body);
      const Seal seal(MeetingKey("token", call.round), "listener", call.nonce);
      test::check(!seal.open("card", call.sealed), "a seal is forged");
      return;
    }
    case 2: return check_again(Card::read(words), &Card::str);
    case 4: return check_again(Answer::read(words), &Answer::str);
    default: {
      const std::vector<Place> places = read_table(words, kProcesses);
      test::check(places.size() == kProcesses, "a table of other processes");
      test::check(table_of(read_table(table_of(places), kProcesses)) == table_of(places),
                  "a written table is read as another");
    }
  }
}

}  // namespace

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(sizeof(std::string_view) * size);  // the parts of a text may be empty
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string words(data + 1, data + size);
  belfry::test::may_refuse([&] { read_words(data[0] % 5, words); });
  return 0;
}
