// A program with names of its own, which using the public face leaves to it. Only looked at by the
// compiler (install_test.cc).
#include "belfry/belfry.h"
using namespace belfry;

struct Bandwidth {};
struct Lane {};
struct Launch {};
struct Link {};
struct Outputs {};
struct Place {};
struct Rank {};
struct Task {};
struct Value {};
struct Wait {};

template <class... All>
constexpr std::size_t count() {
  return sizeof...(All);
}

std::size_t at(std::size_t index) { return index; }

int main() {
  return at(count<Bandwidth, Lane, Launch, Link, Outputs, Place, Rank, Task, Value, Wait>()) == 10
             ? 0
             : 1;
}
