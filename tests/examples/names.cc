// A program that uses names which the public face leaves to programs. It is only compiled
// (install_test.cc).
#include "belfry/allreduce/pieces.h"
#include "belfry/belfry.h"
#include "belfry/ops/kernels/pointwise_op.h"
using namespace belfry;

struct Accumulation {};
struct Averages {};
struct Bandwidth {};
struct Buffer {};
struct Candidates {};
struct Communication {};
struct Console {};
struct Cuts {};
struct Dependency {};
struct Evaluation {};
struct Evaluator {};
struct Feed {};
struct Internal {};
struct Json {};
struct Lane {};
struct Launch {};
struct Link {};
struct Locks {};
struct Machine {};
struct Measured {};
struct Model {};
struct NotFound {};
struct Options {};
struct Outputs {};
struct Place {};
struct Pointers {};
struct Progress {};
struct Range {};
struct Rank {};
struct Rate {};
struct Reuse {};
struct Schedule {};
struct Site {};
struct Slots {};
struct Split {};
struct Spread {};
struct Staging {};
struct Substitutes {};
struct Task {};
struct TreeNode {};
struct Unconnected {};
struct Value {};
struct Wait {};

// An enumerator collides with anything of its name: types, functions and constants.
enum Word {
  arguments,
  cat,
  columns_of,
  did_you_mean,
  dilated,
  even_cuts,
  exchanges,
  first_time,
  fitting,
  hex,
  join,
  kRank,
  kShape,
  kSize,
  kUnknown,
  kVariadic,
  lower,
  main_name,
  nearest,
  only,
  originals,
  packed,
  pass_on,
  piece_sizes,
  refused,
  renamed,
  require,
  scheduled,
  seconds_now,
  shown,
  upper,
};
constexpr Word kWords[] = {
    arguments, cat,       columns_of, did_you_mean, dilated,     even_cuts, exchanges, first_time,
    fitting,   hex,       join,       kRank,        kShape,      kSize,     kUnknown,  kVariadic,
    lower,     main_name, nearest,    only,         originals,   packed,    pass_on,   piece_sizes,
    refused,   renamed,   require,    scheduled,    seconds_now, shown,     upper};

template <class... All>
constexpr std::size_t count() {
  return sizeof...(All);
}

std::size_t at(std::size_t index) { return index; }
std::size_t counted(std::size_t index) { return at(index); }

int main() {
  return counted(
             count<Accumulation, Averages, Bandwidth, Buffer, Candidates, Communication, Console,
                   Cuts, Dependency, Evaluation, Evaluator, Feed, Internal, Json, Lane, Launch,
                   Link, Locks, Machine, Measured, Model, NotFound, Options, Outputs, Place,
                   Pointers, Progress, Range, Rank, Rate, Reuse, Schedule, Site, Slots, Split,
                   Spread, Staging, Substitutes, Task, TreeNode, Unconnected, Value, Wait>()) ==
                     43 &&
                 std::size(kWords) == 31
             ? 0
             : 1;
}
