/* Runs plans from C, and from languages that call C. A plan is a model with its weights, in one
 * file of `belfry checkpoint export RUN FILE --format=plan`. Link with libbelfry.
 *
 *   belfry_predictor* plan = belfry_open("mnist.plan", NULL);
 *   belfry_tensor image = {"image", BELFRY_F32, 4, {1, 28, 28, 1}, pixels}, logits;
 *   if (!plan || belfry_run(plan, &image, 1, "logits", &logits)) puts(belfry_error());
 *
 * Functions that can fail return NULL or -1, and belfry_error() says why. No exception leaves them.
 * Several threads may use one predictor; each run waits for earlier ones.
 */
#ifndef BELFRY_PREDICT_H
#define BELFRY_PREDICT_H

#include <stdint.h> /* NOLINT: this is C */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum belfry_dtype {
  BELFRY_F16,
  BELFRY_BF16,
  BELFRY_F32,
  BELFRY_F64,
  BELFRY_I32,
  BELFRY_I64,
  BELFRY_U8,
  BELFRY_BOOL /* a byte, 0 or 1 */
} belfry_dtype;

enum { BELFRY_MOST_DIMS = 8 };

/* Dense, row-major. */
typedef struct belfry_tensor {
  const char* name;
  belfry_dtype dtype;
  int rank;
  int64_t shape[BELFRY_MOST_DIMS];
  const void* data;
  void* owner; /* of results: what belfry_free() frees */
} belfry_tensor;

typedef struct belfry_predictor belfry_predictor;

/* `device`: "/cpu:0", "/gpu:1" and so on; NULL: "/cpu:0". */
belfry_predictor* belfry_open(const char* file, const char* device);
void belfry_close(belfry_predictor* predictor);

/* Computes the output of this name. The number of samples, the first dimension, is free. Reads the
 * inputs until it returns. Returns 0 and sets `result`, to be freed by belfry_free(). */
int belfry_run(belfry_predictor* predictor, const belfry_tensor* inputs, int count,
               const char* output, belfry_tensor* result);
void belfry_free(belfry_tensor* result);

/* Input number i, without values; sizes that are free are -1. Returns -1 if there are fewer. Names
 * of inputs and outputs are valid until belfry_close(), the name of a result until belfry_free().
 */
int belfry_input(const belfry_predictor* predictor, int i, belfry_tensor* input);
/* The name of output number i; NULL if there are fewer. */
const char* belfry_output(const belfry_predictor* predictor, int i);

/* Why the last call of this thread failed; "" if none has failed. Valid until the next failure. */
const char* belfry_error(void);

#ifdef __cplusplus
}
#endif

#endif
