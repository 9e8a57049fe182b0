#include "belfry/ops/operand.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/neg.h"

namespace belfry {

Output Operand::beside(const Operand& other) const {
  if (output_) return output_;
  require(static_cast<bool>(other.output_), "an operator at ", site_.str(),
          " has no tensor on either side");
  const DType dtype = other.output_.dtype();
  try {
    return constant(other.output_.graph(), scalar_, dtype, site_);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(cat("an operator at ", site_.str(), " on ",
                              other.output_.node().describe(), ": ", error.what()));
  }
}

Output operator+(Operand a, Operand b) { return add(a.beside(b), b.beside(a), a.site()); }
Output operator-(Operand a, Operand b) { return sub(a.beside(b), b.beside(a), a.site()); }
Output operator*(Operand a, Operand b) { return mul(a.beside(b), b.beside(a), a.site()); }
Output operator/(Operand a, Operand b) { return div(a.beside(b), b.beside(a), a.site()); }
Output operator-(Operand x) { return neg(x.beside(x), x.site()); }

}  // namespace belfry
