// A library that is no GPU module.
extern "C" int something_else() { return 1; }
