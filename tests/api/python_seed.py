# python_seed.py SCRIPT [ARGUMENTS...]: runs a script that was written against documentation, with tests/api/fake_cuda.py
# as its PyTorch; on the GPU the scripts run by themselves.

import runpy
import sys

import fake_cuda

fake_cuda.install()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
if fake_cuda.driver.violations():
    sys.exit('%d violations' % fake_cuda.driver.violations())
