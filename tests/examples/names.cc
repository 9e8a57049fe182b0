// A program with names of its own, which using the public face leaves to it. Only looked at by the
// compiler (install_test.cc).
#include "belfry/allreduce/pieces.h"
#include "belfry/belfry.h"
#include "belfry/ops/kernels/pointwise_op.h"
using namespace belfry;

struct Averages {};
struct Bandwidth {};
struct Buffer {};
struct Candidates {};
struct Console {};
struct Cuts {};
struct Evaluation {};
struct Evaluator {};
struct Feed {};
struct Lane {};
struct Launch {};
struct Link {};
struct Locks {};
struct Machine {};
struct Measured {};
struct Options {};
struct Outputs {};
struct Place {};
struct Progress {};
struct Range {};
struct Rank {};
struct Rate {};
struct Schedule {};
struct Site {};
struct Slots {};
struct Split {};
struct Spread {};
struct Staging {};
struct Task {};
struct TreeNode {};
struct Value {};
struct Wait {};

// An enumerator meets anything of its name: types, functions and constants.
enum Word {
  arguments,
  cat,
  columns_of,
  did_you_mean,
  even_cuts,
  exchanges,
  first_time,
  fitting,
  hex,
  join,
  kRank,
  kShape,
  kSize,
  lower,
  main_name,
  nearest,
  only,
  packed,
  pass_on,
  piece_sizes,
  refused,
  renamed,
  require,
  seconds_now,
  shown,
  upper,
};
constexpr Word kWords[] = {
    arguments, cat,     columns_of,  did_you_mean, even_cuts, exchanges,   first_time,
    fitting,   hex,     join,        kRank,        kShape,    kSize,       lower,
    main_name, nearest, only,        packed,       pass_on,   piece_sizes, refused,
    renamed,   require, seconds_now, shown,        upper};

template <class... All>
constexpr std::size_t count() {
  return sizeof...(All);
}

std::size_t at(std::size_t index) { return index; }
std::size_t counted(std::size_t index) { return at(index); }

int main() {
  return counted(count<Averages, Bandwidth, Buffer, Candidates, Console, Cuts, Evaluation,
                       Evaluator, Feed, Lane, Launch, Link, Locks, Machine, Measured, Options,
                       Outputs, Place, Progress, Range, Rank, Rate, Schedule, Site, Slots, Split,
                       Spread, Staging, Task, TreeNode, Value, Wait>()) == 32 &&
                 std::size(kWords) == 26
             ? 0
             : 1;
}
