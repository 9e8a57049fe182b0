#include "belfry/trainers/data/digit_glyphs_impl.h"

namespace belfry::data {
namespace {

// Appends points to one stroke.
class Pen {
 public:
  // A straight line to `to`, in pieces, so that it can be bent.
  Pen& line(GlyphPoint to) {
    constexpr int kPieces = 3;
    if (stroke_.empty()) {
      stroke_.push_back(to);
      return *this;
    }
    const GlyphPoint from = stroke_.back();
    for (int i = 1; i <= kPieces; ++i) {
      const float s = static_cast<float>(i) / kPieces;
      stroke_.push_back({from.x + s * (to.x - from.x), from.y + s * (to.y - from.y)});
    }
    return *this;
  }

  // Part of an ellipse. Angles in 16ths of a turn: 0 right, 4 down, 8 left, 12 up.
  Pen& arc(GlyphPoint centre, float rx, float ry, int from, int to) {
    constexpr float a = .92388f, b = .70711f, c = .38268f;
    constexpr std::array<float, 16> kCosine = {1,  a,  b,  c,  0, -c, -b, -a,
                                               -1, -a, -b, -c, 0, c,  b,  a};
    const int step = to > from ? 1 : -1;
    for (int i = from; i != to + step; i += step) {
      const float cosine = kCosine[static_cast<std::size_t>(i & 15)];
      const float sine = kCosine[static_cast<std::size_t>((i + 12) & 15)];
      stroke_.push_back({centre.x + rx * cosine, centre.y + ry * sine});
    }
    return *this;
  }

  operator Stroke() const { return stroke_; }

 private:
  Stroke stroke_;
};

Pen line(GlyphPoint from, GlyphPoint to) { return Pen().line(from).line(to); }
Pen arc(GlyphPoint centre, float rx, float ry, int from, int to) {
  return Pen().arc(centre, rx, ry, from, to);
}

}  // namespace

const std::array<std::vector<Glyph>, kDigitClasses>& digit_glyphs() {
  static const std::array<std::vector<Glyph>, kDigitClasses> all = {{
      {Glyph{arc({0, 0}, .29f, .48f, 0, 16)}, Glyph{arc({0, 0}, .36f, .44f, 13, 29)}},
      {Glyph{line({0, -.5f}, {0, .5f})}, Glyph{line({-.2f, -.28f}, {.03f, -.5f}).line({.03f, .5f})},
       Glyph{line({-.16f, -.32f}, {.02f, -.5f}).line({.02f, .48f}),
             line({-.2f, .48f}, {.24f, .48f})}},
      {Glyph{arc({0, -.22f}, .28f, .27f, 8, 17).line({-.3f, .48f}).line({.32f, .48f})},
       Glyph{arc({0, -.24f}, .27f, .26f, 8, 18)
                 .arc({-.18f, .38f}, .12f, .09f, 4, 12)
                 .line({.05f, .42f})
                 .line({.34f, .47f})}},
      {Glyph{arc({0, -.25f}, .26f, .24f, 9, 20).arc({0, .24f}, .29f, .26f, 12, 23)},
       Glyph{line({-.27f, -.48f}, {.25f, -.48f})
                 .line({-.02f, -.1f})
                 .arc({0, .2f}, .28f, .29f, 12, 23)}},
      {Glyph{line({-.12f, -.5f}, {-.32f, .1f}).line({.33f, .1f}), line({.14f, -.3f}, {.1f, .5f})},
       Glyph{line({.14f, .5f}, {.14f, -.5f}).line({-.33f, .16f}).line({.34f, .16f})}},
      {Glyph{line({.28f, -.48f}, {-.2f, -.48f})
                 .line({-.23f, -.06f})
                 .arc({0, .17f}, .29f, .31f, 10, 23)},
       Glyph{line({-.2f, -.46f}, {-.22f, -.1f}).arc({-.02f, .18f}, .3f, .3f, 11, 22),
             line({-.2f, -.46f}, {.32f, -.5f})}},
      {Glyph{arc({.16f, .16f}, .43f, .66f, 12, 8).arc({0, .21f}, .27f, .28f, 8, -8)},
       Glyph{line({.06f, -.5f}, {-.25f, .1f}).arc({0, .22f}, .26f, .26f, 9, -6)}},
      {Glyph{line({-.3f, -.47f}, {.3f, -.47f}).line({-.06f, .5f})},
       Glyph{line({-.3f, -.47f}, {.28f, -.47f}).line({-.1f, .5f}),
             line({-.2f, .03f}, {.24f, .01f})},
       Glyph{
           line({-.32f, -.3f}, {-.3f, -.47f}).line({.3f, -.45f}).arc({.3f, .5f}, .3f, .8f, 11, 8)}},
      {Glyph{arc({0, -.25f}, .22f, .23f, 4, 20).arc({0, .24f}, .28f, .26f, 12, 28)},
       Glyph{line({.22f, -.42f}, {.1f, -.46f})
                 .arc({0, -.25f}, .23f, .24f, 13, 5)
                 .arc({0, .25f}, .27f, .25f, 14, 27)
                 .line({.2f, -.36f})}},
      {Glyph{arc({0, -.21f}, .26f, .27f, 0, -16).line({.2f, .5f})},
       Glyph{arc({0, -.22f}, .26f, .27f, -1, -16).arc({-.2f, -.2f}, .46f, .69f, 0, 4)}},
  }};
  return all;
}

}  // namespace belfry::data
