// Pixels of images [N,H,W,C] as channels, and back. H, W and C must be known.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Blocks of block x block pixels become the channels of one: [N, H/block, W/block, block block C].
// As in TensorFlow, the channels of the block's first pixel come first.
Output space_to_depth(Output images, int block, At at = {});
// The inverse: [N, H block, W block, C / block^2].
Output depth_to_space(Output images, int block, At at = {});

// The same for the order of PyTorch, in which the pixels of a block's first channel come first.
Output pixel_unshuffle(Output images, int block, At at = {});
Output pixel_shuffle(Output images, int block, At at = {});

}  // namespace belfry
