// A program with names of its own, which using the public face leaves to it. Only looked at by the
// compiler (install_test.cc).
#include "belfry/belfry.h"
using namespace belfry;

struct Averages {};
struct Bandwidth {};
struct Candidates {};
struct Lane {};
struct Launch {};
struct Link {};
struct Measured {};
struct Outputs {};
struct Place {};
struct Rank {};
struct Slots {};
struct Spread {};
struct Task {};
struct Value {};
struct Wait {};

template <class... All>
constexpr std::size_t count() {
  return sizeof...(All);
}

std::size_t at(std::size_t index) { return index; }
std::size_t counted(std::size_t index) { return at(index); }

int main() {
  return counted(count<Averages, Bandwidth, Candidates, Lane, Launch, Link, Measured, Outputs,
                       Place, Rank, Slots, Spread, Task, Value, Wait>()) == 15
             ? 0
             : 1;
}
