# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

m4_ifndef([PKG_PROG_PKG_CONFIG],
	[m4_fatal([pkg.m4 is missing: install pkg-config (Debian: pkgconf)])])

# XD_MISS(WHAT, DEBIAN-PACKAGE)
# Notes a missing dependency. XD_REPORT_MISSING stops with all of them at once.
AC_DEFUN([XD_MISS], [
	xd_missing="${xd_missing:+$xd_missing, }$1 (Debian: $2)"
	xd_missing_debs="$xd_missing_debs $2"
])

# XD_NEED(VARIABLE, PKG-CONFIG-SPEC, DEBIAN-PACKAGE)
AC_DEFUN([XD_NEED], [
	PKG_CHECK_MODULES([$1], [$2], [], [XD_MISS([$2], [$3])])
])

AC_DEFUN([XD_REPORT_MISSING], [
	AS_IF([test -n "$xd_missing"],
		[AC_MSG_ERROR([missing: $xd_missing
On Debian: apt-get install$xd_missing_debs])])
])

# XD_FLAGS_CC(VARIABLE, FLAGS...)
# Adds to VARIABLE each of FLAGS that the compiler takes without a warning. -Werror is what
# makes clang refuse an option that it does not know.
AC_DEFUN([XD_FLAGS_CC], [
	AC_LANG_PUSH([C])
	xd_save_CFLAGS="$CFLAGS"
	for xd_flag in $2; do
		AS_VAR_PUSHDEF([xd_cv], [xd_cv_cc_$xd_flag])
		AC_CACHE_CHECK([whether $CC takes $xd_flag], [xd_cv], [
			CFLAGS="$xd_save_CFLAGS -Werror $xd_flag"
			AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
				[AS_VAR_SET([xd_cv], [yes])], [AS_VAR_SET([xd_cv], [no])])
		])
		AS_VAR_IF([xd_cv], [yes], [$1="$$1 $xd_flag"])
		AS_VAR_POPDEF([xd_cv])
	done
	CFLAGS="$xd_save_CFLAGS"
	AC_LANG_POP([C])
])

# XD_FLAGS_LD(VARIABLE, FLAGS...): the same for the linker.
AC_DEFUN([XD_FLAGS_LD], [
	AC_LANG_PUSH([C])
	xd_save_LDFLAGS="$LDFLAGS"
	for xd_flag in $2; do
		AS_VAR_PUSHDEF([xd_cv], [xd_cv_ld_$xd_flag])
		AC_CACHE_CHECK([whether the linker takes $xd_flag], [xd_cv], [
			LDFLAGS="$xd_save_LDFLAGS -Werror $xd_flag"
			AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
				[AS_VAR_SET([xd_cv], [yes])], [AS_VAR_SET([xd_cv], [no])])
		])
		AS_VAR_IF([xd_cv], [yes], [$1="$$1 $xd_flag"])
		AS_VAR_POPDEF([xd_cv])
	done
	LDFLAGS="$xd_save_LDFLAGS"
	AC_LANG_POP([C])
])
