-- Health of NodeConfigRollouts and NodeConfigs for Argo CD, from the conditions Ready, Reconciling and Stalled.
local function condition(kind)
  for _, c in ipairs(obj.status.conditions or {}) do
    if c.type == kind then
      return c
    end
  end
  return {}
end

if obj.status == nil or obj.status.conditions == nil then
  return { status = "Progressing", message = "evenkeel has not looked at it yet" }
end
local generation = obj.status.observedGeneration
if generation ~= nil and generation ~= obj.metadata.generation then
  return { status = "Progressing", message = "evenkeel has not looked at the latest change yet" }
end

local ready, reconciling, stalled = condition("Ready"), condition("Reconciling"), condition("Stalled")
if stalled.status == "True" then
  return { status = "Degraded", message = stalled.message }
elseif reconciling.status == "True" then
  return { status = "Progressing", message = reconciling.message }
elseif ready.status == "True" then
  return { status = "Healthy", message = ready.message }
elseif ready.status == "False" then
  return { status = "Suspended", message = ready.message } -- paused, frozen, or waiting for approval
end
return { status = "Unknown", message = "there is no condition Ready: the evenkeel that wrote the status is too old" }
