"""Makes smaller modules from a module, which `hlo-passes bisect` tries one by one."""
