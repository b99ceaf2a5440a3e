"""The same functions without `async`: what `import folkmoot` offers."""

from folkmoot.host.blocking import blocking, blocking_context
from folkmoot.runs import control, join, local, serve

serve_run = blocking_context(serve.serve_run)
join_run = blocking(join.join_run)
run_state = blocking(control.run_state)
pause_run = blocking(control.pause_run)
resume_run = blocking(control.resume_run)
update_run = blocking(control.update_run)
extend_run = blocking(control.extend_run)
train_together = blocking(local.train_together)
