# python_seed.py SCRIPT: runs a script that was written against documentation, with tests/api/fake_cuda.py
# as its PyTorch; on a GPU the scripts run by themselves.

import runpy
import sys

import fake_cuda

fake_cuda.install()
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name='__main__')
finally:
    if fake_cuda.driver.violations():
        sys.exit('%d violations' % fake_cuda.driver.violations())
