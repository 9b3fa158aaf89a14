/* What the files on JPEG share. */
#ifndef AUTOPIPE_JPEG_H
#define AUTOPIPE_JPEG_H

#include "autopipe.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

struct huffman;

struct decoder {
  struct jpeg_decompress_struct info;
  struct jpeg_error_mgr errors;
  jmp_buf back;
  struct huffman *huffman;
  int gave_up; /* the data are not as `huffman` wants them: libjpeg's own code has to read the image */
};

struct huffman *huffman_new(void); /* NULL without memory */
void huffman_free(struct huffman *huffman);
/* Have the entropy-coded data of a started image read by huffman.c, if it is of the usual kind. */
void huffman_begin(struct decoder *decoder);

#endif
