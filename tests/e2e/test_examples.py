# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The examples do what they say."""
import os

from harness import Skip, check, equal, test


@test()
def examples_run(t):
    directory = os.path.join(t.build.builddir, 'examples')
    names = sorted(n for n in os.listdir(directory)
                   if os.path.isfile(os.path.join(directory, n)) and
                   os.access(os.path.join(directory, n), os.X_OK)) if os.path.isdir(directory) else []
    if not names:
        raise Skip('no examples in the build')
    for name in names:
        status, out, errors = t.run([t.build.program('examples/' + name)], timeout=20)
        equal(status, 0, 'status of %s (%s)' % (name, errors))
        check(out.strip(), name + ' says nothing')
        t.note('%s: %s' % (name, out.strip().splitlines()[-1]))
