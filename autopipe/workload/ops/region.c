/* What Python packages do not reach of libjpeg-turbo: to write a progressive JPEG as a baseline one. */

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct failure {
  struct jpeg_error_mgr manager; /* first: libjpeg knows this part only */
  jmp_buf back;
};

static void failed(j_common_ptr info) { longjmp(((struct failure *)info->err)->back, 1); }

static void noted(j_common_ptr info, int level) {
  if (level < 0) info->err->num_warnings++; /* damaged data */
}

static void silent(j_common_ptr info) { (void)info; }

static struct jpeg_error_mgr *handled(struct failure *error) {
  struct jpeg_error_mgr *manager = jpeg_std_error(&error->manager);
  manager->error_exit = failed;
  manager->emit_message = noted;
  manager->output_message = silent;
  return manager;
}

/* Write a JPEG as a baseline one, coefficient by coefficient, behind all its markers (EXIF, ICC, comments) as they are.
 * `count` is the room in `out`, and then the bytes that it takes. Return 0; 1 if the file is damaged; 2 without room. */
int autopipe_baseline(const unsigned char *data, size_t size, unsigned char *out, unsigned long *count) {
  struct jpeg_decompress_struct from;
  struct jpeg_compress_struct to;
  struct failure error;
  unsigned char *made = out;
  memset(&from, 0, sizeof from); /* what was not created yet is not destroyed */
  memset(&to, 0, sizeof to);
  from.err = to.err = handled(&error);
  if (setjmp(error.back)) {
    jpeg_destroy_compress(&to);
    jpeg_destroy_decompress(&from);
    return 1;
  }
  jpeg_create_decompress(&from);
  jpeg_create_compress(&to);
  jpeg_mem_src(&from, (unsigned char *)data, (unsigned long)size);
  jpeg_save_markers(&from, JPEG_COM, 0xFFFF);
  for (int number = 0; number < 16; number++) jpeg_save_markers(&from, JPEG_APP0 + number, 0xFFFF);
  jpeg_read_header(&from, TRUE);
  jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&from);
  jpeg_copy_critical_parameters(&from, &to);
  to.optimize_coding = TRUE;
  to.write_JFIF_header = to.write_Adobe_marker = FALSE; /* they are among the saved ones */
  jpeg_mem_dest(&to, &made, count);
  jpeg_write_coefficients(&to, coefficients);
  for (jpeg_saved_marker_ptr each = from.marker_list; each != NULL; each = each->next)
    jpeg_write_marker(&to, each->marker, each->data, each->data_length);
  jpeg_finish_compress(&to);
  jpeg_finish_decompress(&from);
  int damaged = error.manager.num_warnings != 0;
  jpeg_destroy_compress(&to);
  jpeg_destroy_decompress(&from);
  if (made == out) return damaged;
  free(made); /* libjpeg's own, because `out` was too small */
  return damaged ? 1 : 2;
}
